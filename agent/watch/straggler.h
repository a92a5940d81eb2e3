/* SPDX-License-Identifier: Apache-2.0 */
/* From the moments at which the ranks of one machine enter the calls of a group to the rank that holds the others
 * up, and by how much (lateness.h). Or the nodes of a world, each as if it were a rank (node_calls.h). Pure.
 *
 *     calls of each rank ── those that all have ── a step ends where all wait for all ── who was late, by how much
 *
 * All clocks are one (clock_offset.h). Of several groups the one with the most ranks counts. When calls end is not known. Where some rank
 * makes the next call before all have made this one, nobody has waited; else it is asked what the ranks bring along:
 * who comes late to a call that nobody waits for (gradients in buckets) is as late at the next one, and after a wait
 * all begin alike. Calls of a step that nobody waits for belong together: what a rank is late with at the last of
 * them is what it costs. Short waits (a loss that is averaged) are added to the next long one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/watch/lateness.h"

enum {
    STRAGGLER_CALLS_MAX = 4096, /* of a rank, in one look: two recorders of torch */
    STRAGGLER_GROUPS_MAX = 64
};

/* That all ranks of the group make, in the same order. */
struct straggler_call {
    uint64_t group; /* a hash of its name: the same on all its ranks */
    int64_t number; /* in the group; grows */
    uint64_t entered_ns;
    uint64_t
        shape; /* a hash of what is called, and on how much: comes again each step */
};

/* Who is told now. */
struct straggler_report {
    bool is_set;
    int rank;              /* global */
    struct lateness found; /* rank: the local one, or that of the node */
    char host[256];        /* of the node; "": it is one rank of this one */
    char differs[512];     /* in what it is worse than the others; "": in nothing */
};

struct straggler;

/* NULL: no memory. */
struct straggler *straggler_create(int ranks);
void straggler_destroy(struct straggler *straggler); /* NULL is fine */
/* Another round, or other processes: nothing of what was seen counts. */
void straggler_forget(struct straggler *straggler);
/* What rank `index` has called of late, the oldest first; those that it gave before may be among them. In place
 * of what it gave before. 0 or -ENOMEM. */
int straggler_give(struct straggler *straggler, int index,
                   const struct straggler_call *calls, int count);
int straggler_ranks(const struct straggler *straggler);
/* What rank `index` has given and nobody has taken. Borrowed, until it gives again. */
const struct straggler_call *straggler_given(const struct straggler *straggler,
                                             int index, int *count);
/* Takes what all have given. The number of new steps, or -ENOMEM. What was given is gone. */
int straggler_take(struct straggler *straggler);
/* 1, 0 or -ENOMEM, as lateness_find(); 0 while there are no steps. */
int straggler_find(struct straggler *straggler, struct lateness *out);
/* How late rank `index` was on the average, by the last straggler_find(); false: it is in no group that is
 * looked at. */
bool straggler_late_ns(const struct straggler *straggler, int index, double *late_ns);
/* One that has been told stays so until it is half as late as would be needed to tell it. */
bool straggler_stays(const struct straggler_report *report,
                     const struct lateness *found);
