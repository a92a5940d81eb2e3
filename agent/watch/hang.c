/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/hang.h"

#include "agent/loop/limits.h"

static enum hang_doubt doubt_of(const struct hang_rank *rank)
{
    switch (rank->state) {
    case 'T':
    case 't': return HANG_STOPPED;
    case 'D': return HANG_KERNEL;
    case 'R': return rank->waits ? HANG_MEETS : HANG_RUNS; /* it may poll */
    default: return rank->waits ? HANG_MEETS : HANG_WAITS;
    }
}

/* Whether a is more suspicious than b. */
static int is_worse(const struct hang_rank *a, const struct hang_rank *b)
{
    if (a->step != b->step)
        return a->step < b->step;
    return doubt_of(a) > doubt_of(b);
}

void hang_look(const struct hang_rank *ranks, int count, struct hang_report *out)
{
    *out = (struct hang_report){.suspect = 0, .furthest = ranks[0].step};
    for (int i = 1; i < count; i++) {
        if (is_worse(&ranks[i], &ranks[out->suspect]))
            out->suspect = i;
        if (ranks[i].step > out->furthest)
            out->furthest = ranks[i].step;
    }
    for (int i = 0; i < count; i++) {
        out->ahead += ranks[i].step > ranks[out->suspect].step;
        out->waiting += ranks[i].waits && !ranks[out->suspect].waits;
    }
    out->doubt = doubt_of(&ranks[out->suspect]);
}

/* A node whose ranks all wait reports last: another node may have a rank that is behind, and the
 * first report decides. At most half of the limit is added. */
static uint64_t hesitation_ms(const struct hang_report *report, uint64_t limit_ms)
{
    const uint64_t most_ms = limit_ms / 2 < HANG_HESITATE_MAX_MS ? limit_ms / 2
                                                                 : HANG_HESITATE_MAX_MS;

    if (report->ahead > 0 || report->waiting > 0 || report->doubt >= HANG_KERNEL)
        return 0;
    return report->doubt == HANG_RUNS ? most_ms / 2 : most_ms;
}

int hang_find(const struct hang_rank *ranks, int count, uint64_t limit_ms,
              uint64_t now_ms, struct hang_report *out, uint64_t *wake_ms)
{
    uint64_t due_ms;

    /* no report is due before: stepped_ms of a rank only grows */
    *wake_ms = now_ms + limit_ms;
    if (count == 0)
        return 0;
    hang_look(ranks, count, out);
    if (out->furthest < 0)
        return 0;
    due_ms = ranks[out->suspect].stepped_ms + limit_ms + hesitation_ms(out, limit_ms);
    if (now_ms >= due_ms)
        return 1;
    *wake_ms = due_ms;
    return 0;
}
