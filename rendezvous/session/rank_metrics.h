/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the ranks of one run: the last value of each name, from the last world that sent any.
 * No I/O. */
#pragma once

#include <stddef.h>

#include "worker_sdk/wire/message.h"

/* Zeroed except `all`: empty. */
struct rank_metrics {
    uint64_t generation;
    struct rank_metrics_entry *ranks; /* by rank; owned */
    size_t rank_count, capacity;
    size_t count; /* of its values */
    size_t *all;  /* borrowed: number of values of all runs */
};

struct rank_metrics_entry {
    int32_t rank;
    int count;
    struct ct_metric *list; /* in the order in which they came; owned */
};

/* Stores the values of ranks first to first + slots - 1; values of a later world replace all
 * earlier ones. is_nodes: the values are of nodes, and only CT_METRIC_NODE_LATE is accepted.
 * Returns how many were left out: of other ranks, with a bad name, or above RANK_METRICS_MAX. */
size_t rank_metrics_on_metrics(struct rank_metrics *metrics,
                               const struct ct_metrics *message, int64_t first,
                               int64_t slots, bool is_nodes);
/* True if `message` has metrics of nodes. */
bool rank_metrics_are_of_nodes(const struct ct_metrics *message);
void rank_metrics_clear(struct rank_metrics *metrics);
