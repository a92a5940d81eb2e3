/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/stack_text.h"

#include <string.h>

#include "worker_sdk/base/str.h"

struct line {
    const char *at;
    size_t length;
};

/* The line behind `line`; the first one behind {text, 0}. Length 0 at the end. */
static struct line next_line(struct line line, const char *end)
{
    const char *at = line.at + line.length;
    const char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;

    return (struct line){at, stop ? (size_t)(stop + 1 - at) : (size_t)(end - at)};
}

static bool begins_with(struct line line, const char *text)
{
    return line.length >= strlen(text) && memcmp(line.at, text, strlen(text)) == 0;
}

/* PyTorch's process groups, Gloo, NCCL, MPI, UCC; CUDA and HIP, whose kernels may wait for other ranks. */
static bool names_waiting(struct line line)
{
    static const char *const words[] = {"c10d::", "gloo::", "nccl",   "libmpi",
                                        "libucc", "cuda",   "amdhip", "librccl"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (memmem(line.at, line.length, words[i], strlen(words[i])))
            return true;
    return false;
}

enum stack_text stack_text_judge(const char *text, size_t length, int rank)
{
    const char *end = text + length;
    struct line line = next_line((struct line){text, 0}, end);
    enum stack_text judged = STACK_TEXT_UNKNOWN;
    char head[32];

    (void)ct_format(head, sizeof head, "rank %d: pid ", rank); /* fits */
    while (line.length > 0 && !begins_with(line, head))
        line = next_line(line, end);
    line = next_line(next_line(line, end), end); /* behind the line of the thread */
    for (; begins_with(line, "    "); line = next_line(line, end)) {
        if (!begins_with(line, "    in "))
            continue; /* a Python frame */
        if (names_waiting(line))
            return STACK_TEXT_WAITS;
        judged = STACK_TEXT_FREE;
    }
    return judged;
}
