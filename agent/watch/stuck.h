/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout for programs that report no steps: finds the rank that the others wait for, from what can be
 * seen from outside. Pure.
 *
 * A rank WAITS, in a collective or for others in the store, or is FREE: it waits for no other rank. A suspect
 * is reported when at least one rank has waited for the limit, and during that time no rank has begun to wait
 * and no free rank has made visible progress. While no rank waits, none is reported. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/watch/hang.h"

struct stuck_rank {
    char state; /* of /proc/PID/stat */
    bool waits;
    /* Monotonic: since when it waits; of a free rank: its last sign of progress. */
    uint64_t since_ms;
    /* If its recorder tells: the group and the number of the call in which it waits. group[0] 0:
     * not known, or a call of a pair. Borrowed. */
    const char *group;
    int64_t number;
    const char *call; /* operation and sizes; NULL: not to be compared; borrowed */
};

/* The last call of rank `index` in that group; -1: not known to be in it. */
typedef int64_t stuck_entered_fn(void *context, int index, const char *group);

enum stuck_verdict {
    STUCK_MISSING, /* the suspect has not entered a call in which others wait: proven */
    STUCK_FREE, /* it waits for no other rank, as far as can be seen, and the others wait */
    STUCK_UNLIKE, /* it made another call than the others at the same place in the order */
    STUCK_UNKNOWN /* all wait; the suspect is only one of them */
};

struct stuck_report {
    enum stuck_verdict verdict;
    int suspect; /* index */
    int waiter; /* the rank that has waited longest; for MISSING and UNLIKE: in that call */
    int64_t entered; /* MISSING: the suspect's last call in the group of the waiter */
    int waiting;     /* how many wait */
    int alike; /* how many are as the suspect: of MISSING, FREE: not in it either; of UNLIKE: made
                * the suspect's call. Itself included */
    enum hang_doubt doubt;
};

/* The suspect, if it were reported now. False: no rank waits. */
bool stuck_look(const struct stuck_rank *ranks, int count, stuck_entered_fn *entered,
                void *context, struct stuck_report *out);
/* When a suspect may be reported, if no rank makes progress until then; UINT64_MAX: no rank
 * waits. */
uint64_t stuck_due_ms(const struct stuck_rank *ranks, int count, uint64_t limit_ms);
