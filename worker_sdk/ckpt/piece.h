/* SPDX-License-Identifier: Apache-2.0 */
/* A piece: a box of a tensor, row-major and contiguous by itself; a whole tensor is one, too. Pure.
 *
 * One world may read other pieces than another world wrote. The overlap of two boxes consists of
 * runs, each contiguous in both; ct_runs_next() gives them in the order of the piece that is read. */
#pragma once

#include "worker_sdk/include/ctrun.h"

struct ct_piece {
    const char *name;  /* of the tensor; borrowed */
    const char *dtype; /* the format's name, "F32"; borrowed or static */
    int dims;
    int64_t whole[CTRUN_MAX_DIMS];
    int64_t start[CTRUN_MAX_DIMS];
    int64_t size[CTRUN_MAX_DIMS];
    uint32_t owner; /* who has it: a rank, or the index of a file */
};

/* Makes the piece of a caller's tensor, which is checked. 0, -EINVAL. */
int ct_piece_of_tensor(struct ct_piece *out, const struct ctrun_tensor *tensor,
                       struct ctrun_error *err);
/* True when dims are possible, nothing is negative, the box lies in the whole and that has fewer than
 * 2^63 bytes. */
bool ct_piece_is_sound(const struct ct_piece *piece);
/* Of the box; of a sound piece. */
uint64_t ct_piece_elements(const struct ct_piece *piece);
uint64_t ct_piece_bytes(const struct ct_piece *piece);
/* A number that is the same for a box and for all boxes together that cut it up, each element in
 * one of them; keys are random. Modulo 2^64. */
uint64_t ct_piece_measure(const struct ct_piece *piece,
                          const uint64_t keys[CTRUN_MAX_DIMS]);
/* By name, then by start, then by size. */
int ct_piece_compare(const struct ct_piece *a, const struct ct_piece *b);
/* Of two boxes of tensors of the same shape. */
bool ct_piece_overlaps(const struct ct_piece *a, const struct ct_piece *b);

struct ct_runs {
    uint64_t from; /* first element of the run, in the piece that is read */
    uint64_t to;   /* the same in the one that is written */
    uint64_t count;
    /* private */
    const struct ct_piece *source, *target;
    int outer; /* dimensions in front of those that a run spans */
    int64_t start[CTRUN_MAX_DIMS], size[CTRUN_MAX_DIMS], at[CTRUN_MAX_DIMS];
};

/* Sound pieces of tensors of the same shape; kept. Returns how many elements both have. */
uint64_t ct_runs_init(struct ct_runs *runs, const struct ct_piece *source,
                      const struct ct_piece *target);
/* False: there is no other. */
bool ct_runs_next(struct ct_runs *runs);
