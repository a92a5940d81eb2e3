/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker holds up the others: the one that made the fewest steps; among equals one that has not
 * entered the collective that others wait in, and then the one that is stopped, or sits in the kernel,
 * or computes, rather than waits. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How suspicious a state of /proc/PID/stat is; ct_failure.code of a CT_CAUSE_HANG. */
enum hang_doubt {
    HANG_MEETS = 0,  /* it waits for other ranks: it says so itself (wire/progress.h) */
    HANG_WAITS = 1,  /* S: for whom is not known */
    HANG_RUNS = 2,   /* R: it computes without a step */
    HANG_KERNEL = 3, /* D: a file system or driver does not answer */
    HANG_STOPPED = 4 /* T: somebody stopped it */
};

struct hang_rank {
    int64_t step;        /* the last one reported; -1: none yet */
    uint64_t stepped_ms; /* when; of none: when it started */
    char state;
    bool waits; /* in a collective, send or recv */
};

struct hang_report {
    int suspect;      /* index */
    int64_t furthest; /* the largest step of all */
    int ahead;        /* how many have made more steps than the suspect */
    int waiting;      /* how many wait for other ranks, and the suspect does not */
    enum hang_doubt doubt;
};

/* Who is the suspect at this moment; count > 0. */
void hang_look(const struct hang_rank *ranks, int count, struct hang_report *out);
/* True when the first worker without a step for limit_ms can be told; *wake_ms is when to look
 * again. Ranks that report no steps at all are no concern of ours, unless others do. The more a
 * suspect looks like one that merely waits, the longer its node hesitates (at most another
 * half of the limit): the culprit may be on another one, which is to speak first. */
int hang_find(const struct hang_rank *ranks, int count, uint64_t limit_ms,
              uint64_t now_ms, struct hang_report *out, uint64_t *wake_ms);
