/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout for programs that report no steps: which rank the others wait for, from what can be seen of
 * them from outside. Pure.
 *
 * A rank WAITS, in a collective or for others in the store, or is FREE: what it does is its own. One is
 * told when at least one has waited for the limit, and for as long no rank has begun to wait and no
 * free one has done anything that can be seen. While nobody waits nothing is ever told. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/watch/hang.h"

struct stuck_rank {
    char state; /* of /proc/PID/stat */
    bool waits;
    /* Monotonic: it has waited since; of a free one: its last sign of progress. */
    uint64_t since_ms;
    /* Where its recorder tells what it waits in: the group, and the number of the call. group[0] 0: not
     * known. Borrowed. */
    const char *group;
    int64_t number;
    const char *call; /* operation and sizes; borrowed */
};

/* The last call of rank `index` in that group; -1: not known to be in it. */
typedef int64_t stuck_entered_fn(void *context, int index, const char *group);

enum stuck_verdict {
    STUCK_MISSING, /* the suspect has not entered a call that others wait in: proven */
    STUCK_FREE,    /* it waits for nobody, as far as can be seen, and the others do */
    STUCK_UNLIKE,  /* it made another call than the others at the same place */
    STUCK_UNKNOWN  /* all wait; the suspect is only one of them */
};

struct stuck_report {
    enum stuck_verdict verdict;
    int suspect;     /* index */
    int waiter;      /* one that waits, longest; for MISSING and UNLIKE: in that call */
    int64_t entered; /* MISSING: the suspect's last call in the group of the waiter */
    int waiting;     /* how many wait */
    int alike; /* how many are as the suspect: of MISSING, FREE: not in it either; of UNLIKE: made
                * the suspect's call. Itself included */
    enum hang_doubt doubt;
};

/* Who, if it were reported now. False: nobody waits. */
bool stuck_look(const struct stuck_rank *ranks, int count, stuck_entered_fn *entered,
                void *context, struct stuck_report *out);
/* When one can be told, if nothing moves until then; UINT64_MAX: nobody waits. */
uint64_t stuck_due_ms(const struct stuck_rank *ranks, int count, uint64_t limit_ms);
