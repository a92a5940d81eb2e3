/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank writes what: every rank tells which pieces it has; rank 0 checks that together they
 * are whole tensors, and chooses one rank to write each piece that several have. Pure.
 *
 *     a rank: ct_plan_encode(its pieces) ──> rank 0: ct_plan_add() each, ct_plan_make()
 *                                            ──> a flag for each piece of each rank, and a manifest's pieces */
#pragma once

#include "worker_sdk/ckpt/piece.h"

enum {
    CT_PLAN_EVERYBODY = -1
};

struct ct_plan_entry {
    struct ct_piece piece; /* owner: its rank, from ct_plan_make() on */
    int rank;              /* who has it, or CT_PLAN_EVERYBODY */
    uint32_t index;        /* in the list of that rank */
    char *name;            /* owned */
};

struct ct_plan {
    int size;                      /* of the world */
    struct ct_plan_entry *entries; /* owned */
    size_t count;
    size_t room;
};

/* *out is allocated: free() it. 0, -ENOMEM. */
int ct_plan_encode(uint8_t **out, size_t *length, const struct ct_piece *pieces,
                   size_t count);
void ct_plan_init(struct ct_plan *plan, int size);
void ct_plan_deinit(struct ct_plan *plan);
/* Adds the list of a rank. 0, -ENOMEM, CTRUN_E_PROTOCOL. */
int ct_plan_add(struct ct_plan *plan, int rank, const uint8_t *data, size_t length,
                struct ctrun_error *err);
/* flags: `stride` zeroed bytes for each rank; the flags of the pieces that the rank writes become
 * 1. The entries are then the pieces of the checkpoint, each once, in order. 0, -ENOMEM,
 * CTRUN_E_MISMATCH. */
int ct_plan_make(struct ct_plan *plan, uint8_t *flags, size_t stride,
                 struct ctrun_error *err);
