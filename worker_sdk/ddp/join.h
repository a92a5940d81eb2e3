/* SPDX-License-Identifier: Apache-2.0 */
/* Uneven inputs: which ranks still have data. Before each forward each rank tells this in one
 * byte. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* What a rank does in a forward. */
enum ct_turn {
    CT_TURN_JOINED, /* it has no data left, and makes the others' steps with zeros */
    CT_TURN_LOCAL,
    CT_TURN_SYNC,
    CT_TURNS
};

struct ct_join {
    struct ctrun_join_options options;
    bool is_on;
    uint8_t *turns; /* owned; by rank */
    int ranks;
    int rank;
    int active;   /* ranks with data in this forward */
    int last;     /* the highest of them; of the forward before where there is none */
    bool is_sync; /* they synchronise */
};

/* 0, -ENOMEM, -EINVAL. */
int ct_join_begin(struct ct_join *join, const struct ctrun_group *group,
                  const struct ctrun_join_options *options, struct ctrun_error *err);
/* Accepts a zeroed one. */
void ct_join_end(struct ct_join *join);
/* Collective: tells all ranks what each does in the next forward. CTRUN_E_MISMATCH, on every rank:
 * not all ranks can continue together. */
int ct_join_announce(struct ct_join *join, struct ctrun_group *group, enum ct_turn mine,
                     struct ctrun_error *err);
