/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a node's ranks as those of one: a call counts that all of them have made which are in its group, and is
 * entered when the last of them enters it. So nodes are compared as ranks are (straggler.h). Pure. */
#pragma once

#include "agent/watch/straggler.h"

/* What was told of a group; zeroed: nothing. */
struct node_calls {
    int count;
    struct node_calls_group {
        uint64_t group;
        int64_t last; /* number of the last call that was told */
    } groups[STRAGGLER_GROUPS_MAX];
    int last_rank; /* index: who was the last one most often, by the last node_calls_take(); -1: nobody */
};

/* What has not been told before of what the ranks have given, by time; of more than `max` the last ones. Takes
 * nothing from `given`. The count, or -ENOMEM. */
int node_calls_take(struct node_calls *calls, const struct straggler *given,
                    struct straggler_call *out, int max);
