/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/crash_loop.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "rendezvous/round/failures.h"
#include "worker_sdk/base/hash.h"

/* Length of the number at the start of text, decimal or 0x...; 0: no number. */
static size_t number_length(const char *text, size_t left)
{
    const bool is_hex = left > 2 && text[0] == '0' && text[1] == 'x';
    size_t length = is_hex ? 2 : 0;

    while (length < left && (is_hex ? isxdigit((unsigned char)text[length])
                                    : isdigit((unsigned char)text[length])))
        length++;
    return length;
}

/* The last line that is not empty. */
static const char *find_last_line(const char *text, size_t size, size_t *length)
{
    size_t end = strnlen(text, size);
    size_t begin;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    *length = end - begin;
    return text + begin;
}

/* Hash of the exception, or else of the last output line, without the numbers: times, pids and
 * addresses differ from try to try. 0: the worker printed nothing, or ctrun did not see its
 * output. */
static uint64_t hash_words(const struct ct_failure *failure)
{
    const bool has_exception = failure->exception[0] != '\0';
    uint64_t hash = CT_HASH_START;
    size_t length;
    const char *at = has_exception
                         ? find_last_line(failure->exception, sizeof failure->exception,
                                          &length)
                         : find_last_line(failure->text, sizeof failure->text, &length);

    if (length == 0)
        return 0;
    for (size_t i = 0; i < length;) {
        i += number_length(at + i, length - i);
        if (i < length)
            hash = ct_hash_add(hash, &at[i++], 1);
    }
    return hash;
}

/* CT_CAUSE_RAISED comes before the process has ended: it will exit with 1. */
static int32_t code_of(const struct ct_failure *root)
{
    return root->cause == CT_CAUSE_RAISED ? 1 : root->code;
}

static bool can_be_equal(const struct ct_failure *root)
{
    switch ((enum ct_cause)root->cause) {
    case CT_CAUSE_RAISED:
    case CT_CAUSE_EXIT: /* 1 is what every uncaught exception ends with */
        return !ct_failure_is_victim(root) &&
               (code_of(root) != 1 || hash_words(root) != 0);
    case CT_CAUSE_SIGNAL: return root->code != SIGTERM && !ct_failure_is_victim(root);
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
    case CT_CAUSE_EARLY:
    case CT_CAUSE_ENDED: break;
    }
    return false;
}

bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root)
{
    const struct crash_loop before = *loop;

    *loop = (struct crash_loop){0};
    if (!root->may_loop || !can_be_equal(root))
        return false;
    *loop = (struct crash_loop){.cause = root->cause == CT_CAUSE_RAISED ? CT_CAUSE_EXIT
                                                                        : root->cause,
                                .code = code_of(root),
                                .step = root->step,
                                .line = hash_words(root)};
    return before.cause == loop->cause && before.code == loop->code &&
           before.step == loop->step && before.line == loop->line;
}

bool crash_loop_is_hopeless(const struct ct_failure *root)
{
    return root->cause == CT_CAUSE_EXEC &&
           (root->code == ENOENT || root->code == ENOEXEC || root->code == EACCES);
}
