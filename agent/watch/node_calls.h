/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a node's ranks, as if the node were one rank: a call counts if all ranks of the node
 * in its group have made it, and is entered when the last of them enters it. So nodes are compared
 * as ranks are (straggler.h). Pure. */
#pragma once

#include "agent/watch/straggler.h"

/* What was taken from each group; zeroed: nothing. */
struct node_calls {
    int count;
    struct node_calls_group {
        uint64_t group;
        int64_t last; /* number of the last call that was taken */
    } groups[STRAGGLER_GROUPS_MAX];
    int last_rank; /* index: the rank that was last most often, by the last node_calls_take(); -1: none */
};

/* The calls in `given` that were not taken before, by time; if there are more than `max`, the last
 * ones. Does not change `given`. The count, or -ENOMEM. */
int node_calls_take(struct node_calls *calls, const struct straggler *given,
                    struct straggler_call *out, int max);
