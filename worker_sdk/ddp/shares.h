/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which piece of the parameters under ZeRO-1. Pure: each rank computes the shares of all
 * ranks. */
#pragma once

#include "worker_sdk/include/ctrun.h"

struct ct_piece {
    size_t param;
    size_t offset; /* in elements */
    size_t length; /* likewise, not 0 */
};

struct ct_shares {
    size_t ranks;
    struct ct_piece *pieces; /* owned; those of rank 0, then those of rank 1, ... */
    size_t *first;           /* owned; ranks + 1: where a rank's pieces begin */
    size_t *
        starts; /* owned; by rank: where its elements begin, one rank's behind the other's */
    size_t *counts; /* owned; by rank: its elements */
    size_t total;   /* elements of all */
};

/* Where a parameter is in a row of elements, of which each rank has a slice, one behind the other;
 * the last rank also has what is behind the slices. */
struct ct_cut {
    size_t begin; /* in elements */
    size_t slice; /* length */
};
/* Rank r's piece of a parameter of that length; of no length where the rank has nothing of it. */
struct ct_piece ct_cut_piece(const struct ct_cut *cut, size_t length, size_t ranks,
                             size_t r);

/* lengths: elements of each of `count` parameters, 0 for those that nobody owns. are_whole: no
 * parameter is split: the longest goes first, to the rank that has least (the lowest of equals), as
 * torch's ZeroRedundancyOptimizer does it; else shares are of equal length but for the last ones.
 * cuts: by parameter, then each rank owns what is in its slices; NULL: there are none.
 * Within a rank pieces are in the parameters' order. 0, -ENOMEM. */
int ct_shares_init(struct ct_shares *shares, const size_t *lengths, size_t count,
                   size_t ranks, bool are_whole, const struct ct_cut *cuts);
/* Accepts a zeroed one. */
void ct_shares_deinit(struct ct_shares *shares);
