/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker holds up the others: the one that made the fewest steps, and among equals the one
 * that is stopped, or sits in the kernel, or computes, rather than waits. Pure. */
#ifndef AGENT_HANG_H
#define AGENT_HANG_H

#include <stdint.h>

/* How suspicious a state of /proc/PID/stat is; ct_failure.code of a CT_CAUSE_HANG. */
enum hang_doubt {
    HANG_WAITS = 0,  /* S: as those do that wait for it */
    HANG_RUNS = 1,   /* R: it computes without a step */
    HANG_KERNEL = 2, /* D: a file system or driver does not answer */
    HANG_STOPPED = 3 /* T: somebody stopped it */
};

struct hang_rank {
    int64_t step;     /* the last one told; -1: none yet */
    uint64_t told_ms; /* when; of none: when it started */
    char state;
};

struct hang_report {
    int suspect;      /* index */
    int64_t furthest; /* the largest step of all */
    int ahead;        /* how many have made more steps than the suspect */
    enum hang_doubt doubt;
};

/* True when the first worker without a step for limit_ms can be told; *wake_ms is when to look
 * again. Ranks that tell no steps at all are no concern of ours, unless others do. The more a
 * suspect looks like one that merely waits, the longer its node hesitates (at most another
 * half of the limit): the culprit may be on another one, which is to speak first. */
int hang_find(const struct hang_rank *ranks, int count, uint64_t limit_ms,
              uint64_t now_ms, struct hang_report *out, uint64_t *wake_ms);

#endif
