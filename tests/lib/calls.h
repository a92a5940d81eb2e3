/* SPDX-License-Identifier: Apache-2.0 */
/* One call of each kind that a group has, for tests in which something happens during a call. */
#pragma once

#include "worker_sdk/include/ctrun.h"

enum call_kind {
    CALL_ALL_REDUCE,
    CALL_REDUCE,
    CALL_BROADCAST,
    CALL_ALL_GATHER,
    CALL_ALL_GATHER_V,
    CALL_REDUCE_SCATTER,
    CALL_BARRIER,
    CALL_ALL_TO_ALL,
    CALL_ALL_TO_ALL_V,
    CALL_GATHER,
    CALL_SCATTER,
    CALL_RING, /* messages: each sends to the next */
    CALL_KINDS
};

enum {
    CALL_RANKS_MAX = 4
};

/* source: the rank that broadcasts and scatters; rank 0 gathers and reduces. Not thread-safe. */
int call_make(struct ctrun_group *group, enum call_kind kind, int source,
              struct ctrun_error *err);
