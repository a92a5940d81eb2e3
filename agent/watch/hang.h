/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker holds up the others: the worker with the fewest steps; among equals a worker that has not
 * entered the collective in which others wait; then a worker that is stopped, or blocked in the kernel,
 * or computes, before one that waits. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How suspicious a state of /proc/PID/stat is; ct_failure.code of a CT_CAUSE_HANG. */
enum hang_doubt {
    HANG_MEETS = 0,  /* it reports that it waits for ranks (wire/progress.h) */
    HANG_WAITS = 1,  /* S: it is not known for whom it waits */
    HANG_RUNS = 2,   /* R: it computes, and makes no step */
    HANG_KERNEL = 3, /* D: a file system or driver does not answer */
    HANG_STOPPED = 4 /* T: stopped by a signal */
};

struct hang_rank {
    int64_t step;        /* the last step reported; -1: none yet */
    uint64_t stepped_ms; /* when that was; if none: when the worker started */
    char state;
    bool waits; /* in a collective, send or recv */
};

struct hang_report {
    int suspect;      /* index */
    int64_t furthest; /* the largest step of all */
    int ahead;        /* how many have made more steps than the suspect */
    int waiting;      /* how many wait for other ranks while the suspect does not */
    enum hang_doubt doubt;
};

/* Finds the suspect at this moment; count > 0. */
void hang_look(const struct hang_rank *ranks, int count, struct hang_report *out);
/* True when the first worker without a step for limit_ms may be reported; *wake_ms is when to look
 * again. Ranks that report no steps count only if others do. The more a suspect looks like a rank
 * that merely waits, the longer its node hesitates (at most another half of the limit): the rank
 * that causes the hang may be on another node, which has to report first. */
int hang_find(const struct hang_rank *ranks, int count, uint64_t limit_ms,
              uint64_t now_ms, struct hang_report *out, uint64_t *wake_ms);
