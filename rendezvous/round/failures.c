/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/failures.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "rendezvous/round/round_limits.h"
#include "worker_sdk/wire/contract.h"

void failures_clear(struct failures *failures)
{
    failures->cause_count = 0;
    failures->consequence_count = 0;
    failures->more = (struct ct_more){0};
    failures->hang_ms = 0;
}

static bool is_same(const struct ct_failure *a, const struct ct_failure *b)
{
    return a->generation == b->generation && a->node_rank == b->node_rank &&
           a->rank == b->rank && a->pid == b->pid && a->cause == b->cause;
}

static struct ct_failure *find_same(struct ct_failure *list, size_t count,
                                    const struct ct_failure *failure)
{
    for (size_t i = 0; i < count; i++) {
        if (is_same(&list[i], failure))
            return &list[i];
    }
    return NULL;
}

/* Adds how a worker ended to the failure that was reported before its end. */
static bool complete_cause(struct failures *failures, const struct ct_failure *end)
{
    for (size_t i = 0; i < failures->cause_count; i++) {
        struct ct_failure *cause = &failures->causes[i];

        if (cause->generation != end->generation || cause->rank < 0 ||
            cause->rank != end->rank || cause->pid != end->pid)
            continue;
        if (cause->end_code == 0)
            cause->end_code = end->end_code;
        return true;
    }
    return false;
}

static void add_consequence(struct failures *failures, const struct ct_failure *failure)
{
    if (complete_cause(failures, failure))
        return;
    if (find_same(failures->consequences, failures->consequence_count, failure))
        return;
    if (failures->consequence_count < CT_FAILURES_MAX)
        failures->consequences[failures->consequence_count++] = *failure;
    else
        failures->more.stopped += failure->cause == CT_CAUSE_STOPPED;
}

/* By how many ms `a_ms` was certainly before `b_ms`, which may be wrong by `doubt_ms`; 0: the order is not certain. */
static uint64_t find_lead_ms(uint64_t a_ms, uint64_t b_ms, uint64_t doubt_ms)
{
    if (a_ms == 0 || b_ms <= a_ms || b_ms - a_ms <= doubt_ms + FAILURE_DOUBT_MS)
        return 0;
    return b_ms - a_ms;
}

/* The same for when they happened. */
static uint64_t find_lead(const struct ct_failure *a, const struct ct_failure *b)
{
    return find_lead_ms(a->happened_ms, b->happened_ms, b->doubt_ms);
}

/* A failure stands behind those that came earlier, but before victims and before failures that
 * certainly happened later; failures in front of `first` stay there. */
static size_t find_place(const struct failures *failures,
                         const struct ct_failure *failure, size_t first)
{
    size_t end = failures->cause_count;

    if (ct_failure_is_victim(failure))
        return end;
    while (end > 0 && ct_failure_is_victim(&failures->causes[end - 1]))
        end--;
    for (size_t at = first; at < end; at++) {
        if (find_lead(failure, &failures->causes[at]) > 0)
            return at;
    }
    return end;
}

/* Counts a failure for which there is no room. Only the report at the end of its node counts: an
 * earlier report of the same failure comes again then. */
static void drop(struct failures *failures, const struct ct_failure *failure)
{
    failures->more.failed += failure->is_end;
}

/* When the list is full, the last failure is dropped. */
static void add_cause(struct failures *failures, const struct ct_failure *failure,
                      size_t first)
{
    struct ct_failure *causes = failures->causes;
    struct ct_failure *same = find_same(causes, failures->cause_count, failure);
    size_t at;

    if (same) {
        same->is_end |= failure->is_end;
        (void)complete_cause(failures, failure);
        return;
    }
    if ((at = find_place(failures, failure, first)) == CT_FAILURES_MAX) {
        drop(failures, failure);
        return;
    }
    if (failures->cause_count == CT_FAILURES_MAX)
        drop(failures, &causes[--failures->cause_count]);
    memmove(&causes[at + 1], &causes[at],
            (failures->cause_count - at) * sizeof *causes);
    causes[at] = *failure;
    failures->cause_count++;
}

/* If several nodes report a stuck rank, the one with the fewest steps is the cause, then the one in
 * the most suspicious state (agent/watch/hang.h): the others waited for that rank. */
static bool is_more_stuck(const struct ct_failure *a, const struct ct_failure *b)
{
    if (a->cause != CT_CAUSE_HANG || b->cause != CT_CAUSE_HANG)
        return false;
    return a->step != b->step ? a->step < b->step : a->code > b->code;
}

static void keep_most_stuck(struct failures *failures)
{
    struct ct_failure *causes = failures->causes;
    struct ct_failure *first = NULL;
    size_t kept = 0;

    for (size_t i = 0; i < failures->cause_count; i++) {
        if (causes[i].cause != CT_CAUSE_HANG || !first)
            causes[kept++] = causes[i];
        else if (is_more_stuck(&causes[i], first))
            *first = causes[i];
        if (causes[i].cause == CT_CAUSE_HANG && !first)
            first = &causes[kept - 1];
    }
    failures->cause_count = kept;
}

static void add(struct failures *failures, const struct ct_failure *failure,
                size_t first)
{
    if (failure->cause == CT_CAUSE_NONE)
        return;
    if (failure->cause == CT_CAUSE_STOPPED || failure->cause == CT_CAUSE_EARLY ||
        failure->cause == CT_CAUSE_ENDED)
        add_consequence(failures, failure);
    else
        add_cause(failures, failure, first);
    keep_most_stuck(failures);
}

void failures_add(struct failures *failures, const struct ct_failure *failure)
{
    add(failures, failure, 0);
}

void failures_add_reported(struct failures *failures, const struct ct_failure *failure,
                           const struct failures_arrival *arrival)
{
    struct ct_failure dated = *failure;

    dated.later_ms = 0;
    dated.is_end = arrival->is_end;
    dated.doubt_ms = arrival->rtt_ms;
    dated.happened_ms = failure->age_ms == 0 ? 0
                        : failure->age_ms < arrival->at_ms
                            ? arrival->at_ms - failure->age_ms
                            : 1;
    if (failure->cause == CT_CAUSE_HANG && failures->hang_ms == 0)
        failures->hang_ms = arrival->at_ms;
    add(failures, &dated, arrival->is_decided ? 1 : 0);
}

void failures_add_root(struct failures *failures, const struct ct_failure *failure)
{
    size_t count = failures->cause_count;

    if (count == CT_FAILURES_MAX)
        drop(failures, &failures->causes[--count]);
    memmove(&failures->causes[1], &failures->causes[0],
            count * sizeof failures->causes[0]);
    failures->causes[0] = *failure;
    failures->cause_count = count + 1;
    for (size_t i = 0; i <= count; i++)
        failures->causes[i].later_ms = 0; /* the cause was after another failure */
}

const struct ct_failure *failures_get_root(const struct failures *failures)
{
    return failures->cause_count > 0 ? &failures->causes[0] : NULL;
}

/* A node knows the order of its own workers only. False: the worker ended after the root cause. */
static bool copy_consequence(const struct failures *failures,
                             const struct ct_failure *other, struct ct_failure *out)
{
    const struct ct_failure *root = failures_get_root(failures);
    uint64_t root_ms;

    *out = *other;
    if (other->cause != CT_CAUSE_EARLY || !root || other->node_rank == root->node_rank)
        return true;
    root_ms = root->cause == CT_CAUSE_HANG ? failures->hang_ms : root->happened_ms;
    if (find_lead_ms(other->happened_ms, root_ms, root->doubt_ms) == 0)
        out->cause = CT_CAUSE_ENDED;
    return find_lead_ms(root_ms, other->happened_ms, other->doubt_ms) == 0;
}

uint8_t failures_copy(const struct failures *failures, struct ct_failure *out,
                      uint8_t max)
{
    uint8_t count = 0;

    for (size_t i = 0; i < failures->cause_count && count < max; i++) {
        const uint64_t lead_ms = find_lead(&failures->causes[0], &failures->causes[i]);

        out[count] = failures->causes[i];
        if (lead_ms > 0) /* else keep what an earlier server computed */
            out[count].later_ms = lead_ms;
        count++;
    }
    for (size_t i = 0; i < failures->consequence_count && count < max; i++)
        count += copy_consequence(failures, &failures->consequences[i], &out[count]);
    return count;
}

void failures_add_more(struct failures *failures, const struct ct_more *more)
{
    failures->more.failed += more->failed;
    failures->more.stopped += more->stopped;
}

struct ct_more failures_count_more(const struct failures *failures)
{
    struct ct_more more = failures->more;

    for (size_t i = CT_FAILURES_MAX - failures->cause_count;
         i < failures->consequence_count; i++)
        more.stopped += failures->consequences[i].cause == CT_CAUSE_STOPPED;
    return more;
}

/* A code that fits an exit status and is not 0: 256 must not look like success. */
static uint8_t clamp(int32_t code)
{
    return (code & 0xff) ? (uint8_t)(code & 0xff) : CT_EXIT_FAILURE;
}

uint8_t failures_exit_code(const struct ct_failure *failure)
{
    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_EXIT: return clamp(failure->code);
    case CT_CAUSE_SIGNAL:
    case CT_CAUSE_STOPPED: return clamp(CT_EXIT_SIGNAL + (failure->code & 0x7f));
    case CT_CAUSE_OOM: return CT_EXIT_SIGNAL + SIGKILL;
    case CT_CAUSE_EXEC:
        return failure->code == ENOENT ? CT_EXIT_NOT_FOUND : CT_EXIT_CANNOT_EXEC;
    case CT_CAUSE_NODE_LOST:
    case CT_CAUSE_JOIN_TIMEOUT:
    case CT_CAUSE_UNREACHABLE: return CT_EXIT_RETRY;
    case CT_CAUSE_UNKILLABLE: return CT_EXIT_UNKILLABLE;
    case CT_CAUSE_NONE:
    case CT_CAUSE_HANG:
    case CT_CAUSE_EARLY:
    case CT_CAUSE_ENDED:
    case CT_CAUSE_RAISED:
    case CT_CAUSE_AGENT: break;
    }
    return CT_EXIT_FAILURE; /* a cause of a newer agent ends up here too */
}
