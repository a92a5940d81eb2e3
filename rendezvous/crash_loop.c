/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/crash_loop.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "rendezvous/failures.h"

/* How much at text[at] is a number, decimal or 0x... */
static size_t number_length(const char *text, size_t left)
{
    const bool is_hex = left > 2 && text[0] == '0' && text[1] == 'x';
    size_t length = is_hex ? 2 : 0;

    while (length < left && (is_hex ? isxdigit((unsigned char)text[length])
                                    : isdigit((unsigned char)text[length])))
        length++;
    return length;
}

/* FNV-1a of the last line that is not empty, without its numbers: times, pids and addresses differ
 * from try to try. */
static uint64_t hash_last_line(const char *text, size_t size)
{
    size_t end = strnlen(text, size);
    size_t begin;
    uint64_t hash = 14695981039346656037u;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    while (begin < end) {
        begin += number_length(text + begin, end - begin);
        if (begin < end)
            hash = (hash ^ (unsigned char)text[begin++]) * 1099511628211u;
    }
    return hash;
}

static bool can_be_alike(const struct ct_failure *root)
{
    switch ((enum ct_cause)root->cause) {
    case CT_CAUSE_EXIT: return !failures_is_victim(root);
    case CT_CAUSE_SIGNAL: return root->code != SIGKILL && root->code != SIGTERM;
    case CT_CAUSE_OOM:
    case CT_CAUSE_EXEC:
    case CT_CAUSE_AGENT:
    case CT_CAUSE_UNREACHABLE: return true;
    case CT_CAUSE_NONE:
    case CT_CAUSE_STOPPED:
    case CT_CAUSE_NODE_LOST:
    case CT_CAUSE_UNKILLABLE:
    case CT_CAUSE_JOIN_TIMEOUT:
    case CT_CAUSE_HANG:
    case CT_CAUSE_EARLY: break;
    }
    return false;
}

bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root)
{
    const struct crash_loop before = *loop;

    *loop = (struct crash_loop){0};
    if (!root->is_early || !can_be_alike(root))
        return false;
    *loop = (struct crash_loop){.cause = root->cause,
                                .code = root->code,
                                .step = root->step,
                                .line = hash_last_line(root->text, sizeof root->text)};
    return before.cause == loop->cause && before.code == loop->code &&
           before.step == loop->step && before.line == loop->line;
}

bool crash_loop_is_hopeless(const struct ct_failure *root)
{
    return root->cause == CT_CAUSE_EXEC &&
           (root->code == ENOENT || root->code == ENOEXEC || root->code == EACCES);
}
