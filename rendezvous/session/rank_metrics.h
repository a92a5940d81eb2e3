/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of one run measure and told: the last value of each name, of the last world that told any.
 * No I/O. */
#pragma once

#include <stddef.h>

#include "worker_sdk/wire/message.h"

/* Zeroed but for `all`: empty. */
struct rank_metrics {
    uint64_t generation;
    struct rank_metrics_entry *ranks; /* by rank; owned */
    size_t rank_count, capacity;
    size_t count; /* of its values */
    size_t *all;  /* kept: of those of all runs of this server */
};

struct rank_metrics_entry {
    int32_t rank;
    int count;
    struct ct_metric *list; /* in the order in which they came; owned */
};

/* Takes the values of ranks first to first + slots - 1; those of a later world take the place of all that
 * is here. is_nodes: they are of nodes, and only CT_METRIC_NODE_LATE is accepted.
 * Returns how many were left out: of other ranks, no names, or RANK_METRICS_MAX are here. */
size_t rank_metrics_on_metrics(struct rank_metrics *metrics,
                               const struct ct_metrics *message, int64_t first,
                               int64_t slots, bool is_nodes);
/* Whether `message` has metrics of nodes. */
bool rank_metrics_are_of_nodes(const struct ct_metrics *message);
void rank_metrics_clear(struct rank_metrics *metrics);
