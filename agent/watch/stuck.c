/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/stuck.h"

#include <string.h>

/* A stopped process does nothing, whatever it was in. */
static bool is_stopped(const struct stuck_rank *rank)
{
    return rank->state == 'T' || rank->state == 't';
}

static bool is_waiting(const struct stuck_rank *rank)
{
    return rank->waits && !is_stopped(rank);
}

static bool has_call(const struct stuck_rank *rank)
{
    return is_waiting(rank) && rank->group && *rank->group;
}

uint64_t stuck_due_ms(const struct stuck_rank *ranks, int count, uint64_t limit_ms)
{
    uint64_t last_ms = 0;
    bool waits = false;

    for (int i = 0; i < count; i++) {
        waits |= is_waiting(&ranks[i]);
        if (ranks[i].since_ms > last_ms)
            last_ms = ranks[i].since_ms;
    }
    return waits ? last_ms + limit_ms : UINT64_MAX;
}

/* ---- A free one ------------------------------------------------------------------------ */

/* The waiter whose call rank `index` has not entered, though it is in that group; -1: none. */
static int find_missed(const struct stuck_rank *ranks, int count,
                       stuck_entered_fn *entered, void *context, int index,
                       int64_t *last)
{
    for (int i = 0; i < count; i++) {
        if (!has_call(&ranks[i]))
            continue;
        *last = entered(context, index, ranks[i].group);
        if (*last >= 0 && *last < ranks[i].number)
            return i;
    }
    return -1;
}

static int doubt_of_free(const struct stuck_rank *rank)
{
    const struct hang_rank seen = {.state = rank->state};
    struct hang_report report;

    hang_look(&seen, 1, &report);
    return (int)report.doubt;
}

/* Proven suspects first, then by state. */
static void look_at_free(const struct stuck_rank *ranks, int count,
                         stuck_entered_fn *entered, void *context,
                         struct stuck_report *out)
{
    out->suspect = -1;
    for (int i = 0; i < count; i++) {
        int64_t last = -1;
        const int missed = is_waiting(&ranks[i])
                               ? -1
                               : find_missed(ranks, count, entered, context, i, &last);
        const enum stuck_verdict verdict = missed >= 0 ? STUCK_MISSING : STUCK_FREE;
        const int doubt = doubt_of_free(&ranks[i]);

        if (is_waiting(&ranks[i]) || (out->suspect >= 0 && verdict > out->verdict))
            continue;
        if (out->suspect >= 0 && verdict == out->verdict)
            out->alike++;
        else
            out->alike = 1;
        if (out->suspect >= 0 && verdict == out->verdict && doubt <= (int)out->doubt)
            continue;
        out->suspect = i;
        out->verdict = verdict;
        out->doubt = (enum hang_doubt)doubt;
        if (missed >= 0) {
            out->waiter = missed;
            out->entered = last;
        }
    }
}

/* ---- All wait ---------------------------------------------------------------------------- */

static bool is_same_place(const struct stuck_rank *a, const struct stuck_rank *b)
{
    return has_call(a) && has_call(b) && a->call && b->call && a->number == b->number &&
           strcmp(a->group, b->group) == 0;
}

/* How many ranks at the place of `rank` made the same call, or (is_like false) another one. */
static int count_calls(const struct stuck_rank *ranks, int count, int rank,
                       bool is_like, int *one)
{
    int found = 0;

    for (int i = 0; i < count; i++)
        if (is_same_place(&ranks[rank], &ranks[i]) &&
            (strcmp(ranks[rank].call, ranks[i].call) == 0) == is_like) {
            *one = i;
            found++;
        }
    return found;
}

/* Finds ranks whose call fewer ranks have made than another call at the same place; if both counts
 * are equal, it is not known which is wrong, but the calls do not match. */
static bool find_unlike(const struct stuck_rank *ranks, int count,
                        struct stuck_report *out)
{
    for (int i = 0; i < count; i++) {
        int like, other;
        const int others = count_calls(ranks, count, i, false, &other);
        const int alike = count_calls(ranks, count, i, true, &like);

        if (others == 0 || alike > others)
            continue;
        out->verdict = STUCK_UNLIKE;
        out->suspect = i;
        out->waiter = other;
        out->alike = alike;
        return true;
    }
    return false;
}

/* A rank that others are ahead of in the same group has not entered their call. */
static bool find_behind(const struct stuck_rank *ranks, int count,
                        stuck_entered_fn *entered, void *context,
                        struct stuck_report *out)
{
    for (int i = 0; i < count; i++) {
        int64_t last;
        const int missed = find_missed(ranks, count, entered, context, i, &last);

        if (missed < 0 || !has_call(&ranks[i]) ||
            strcmp(ranks[missed].group, ranks[i].group) != 0)
            continue;
        out->verdict = STUCK_MISSING;
        out->suspect = i;
        out->waiter = missed;
        out->entered = last;
        out->alike = 1;
        return true;
    }
    return false;
}

bool stuck_look(const struct stuck_rank *ranks, int count, stuck_entered_fn *entered,
                void *context, struct stuck_report *out)
{
    *out = (struct stuck_report){.verdict = STUCK_UNKNOWN, .doubt = HANG_MEETS};
    out->waiter = -1;
    for (int i = 0; i < count; i++) {
        if (!is_waiting(&ranks[i]))
            continue;
        out->waiting++;
        if (out->waiter < 0 || ranks[i].since_ms < ranks[out->waiter].since_ms)
            out->waiter = i;
    }
    if (out->waiting == 0)
        return false;
    look_at_free(ranks, count, entered, context, out);
    if (out->suspect >= 0)
        return true;
    out->suspect = out->waiter;
    out->alike = out->waiting;
    out->verdict = STUCK_UNKNOWN;
    out->doubt = HANG_MEETS;
    if (!find_unlike(ranks, count, out))
        (void)find_behind(ranks, count, entered, context, out); /* else UNKNOWN */
    return true;
}
