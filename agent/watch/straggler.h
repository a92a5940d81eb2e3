/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rank that holds the others up, and by how much (lateness.h), from the times at which the ranks of one
 * machine enter the calls of a group. The same for the nodes of a world, each as if it were a rank (node_calls.h). Pure.
 *
 *     calls of each rank ── calls that all made ── a step ends where all wait for all ── who was late, by how much
 *
 * All times are of one clock (clock_offset.h). Of several groups the one with the most ranks counts. The ends of calls
 * are not known. If some rank makes the next call before all have made this one, no rank has waited. Otherwise the
 * lateness decides: a rank that is late at a call without a wait (gradients in buckets) is as late at the next call,
 * but after a wait all ranks start at the same time. Calls of a step without a wait belong together: the lateness at
 * the last of them counts. Short waits (a loss that is averaged) are added to the next long one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/watch/lateness.h"

enum {
    STRAGGLER_CALLS_MAX = 4096, /* of a rank, in one look: torch has two recorders */
    STRAGGLER_GROUPS_MAX = 64
};

/* A call that all ranks of the group make, in the same order. */
struct straggler_call {
    uint64_t group; /* a hash of its name: the same on all its ranks */
    int64_t number; /* in the group; grows */
    uint64_t entered_ns;
    uint64_t shape; /* a hash of the operation and its size: the same in each step */
};

/* The straggler that is reported now. */
struct straggler_report {
    bool is_set;
    int rank;              /* global rank */
    struct lateness found; /* rank: the local rank, or the node's index */
    char host[256];        /* of the node; "": `rank` is of this node */
    char differs[512]; /* the values in which it is worse than the others; "": none */
};

struct straggler;

/* NULL: out of memory. */
struct straggler *straggler_create(int ranks);
void straggler_destroy(struct straggler *straggler); /* NULL is fine */
/* Drops all that was seen: another round, or other processes. */
void straggler_forget(struct straggler *straggler);
/* The last calls of rank `index`, the oldest first; calls that it gave before may be among them.
 * Replaces what it gave before. 0 or -ENOMEM. */
int straggler_give(struct straggler *straggler, int index,
                   const struct straggler_call *calls, int count);
int straggler_ranks(const struct straggler *straggler);
/* Calls that rank `index` has given and that were not taken yet. Borrowed, until it gives again. */
const struct straggler_call *straggler_given(const struct straggler *straggler,
                                             int index, int *count);
/* Takes and removes the calls that all ranks have given. The number of new steps, or -ENOMEM. */
int straggler_take(struct straggler *straggler);
/* 1, 0 or -ENOMEM, as lateness_find(); 0 while there are no steps. */
int straggler_find(struct straggler *straggler, struct lateness *out);
/* How late rank `index` was on average, by the last straggler_find(); false: it is not in the group
 * that is compared. */
bool straggler_late_ns(const struct straggler *straggler, int index, double *late_ns);
/* A reported rank stays reported until it is less than half as late as a new report needs. */
bool straggler_stays(const struct straggler_report *report,
                     const struct lateness *found);
