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

static bool has_one(struct line line, const char *const *words)
{
    for (; *words; words++)
        if (memmem(line.at, line.length, *words, strlen(*words)))
            return true;
    return false;
}

static const char *const store[] = {"Store::", NULL};
/* PyTorch's process groups, Gloo, NCCL, MPI, UCC. */
static const char *const collectives[] = {"c10d::", "gloo::",  "nccl", "libmpi",
                                          "libucc", "librccl", NULL};
/* Its kernels may be those of a collective, or of the rank itself. */
static const char *const gpu[] = {"cuda", "amdhip", NULL};

enum stack_text stack_text_judge(const char *text, size_t length, int rank)
{
    const char *end = text + length;
    struct line line = next_line((struct line){text, 0}, end);
    enum stack_text judged = STACK_TEXT_UNKNOWN;
    bool has_gpu = false;
    char head[32];

    (void)ct_format(head, sizeof head, "rank %d: pid ", rank); /* fits */
    while (line.length > 0 && !begins_with(line, head))
        line = next_line(line, end);
    line = next_line(next_line(line, end), end); /* behind the line of the thread */
    for (; begins_with(line, "    "); line = next_line(line, end)) {
        if (!begins_with(line, "    in "))
            continue; /* a Python frame */
        if (has_one(line, collectives) && !has_one(line, store))
            return STACK_TEXT_WAITS;
        has_gpu |= has_one(line, gpu);
        judged = STACK_TEXT_FREE;
    }
    return has_gpu ? STACK_TEXT_UNKNOWN : judged;
}
