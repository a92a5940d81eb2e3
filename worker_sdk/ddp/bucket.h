/* SPDX-License-Identifier: Apache-2.0 */
/* Which gradients travel together: PyTorch's bucket assignment, a pure function.
 *
 * Tensors are taken in order and collected per key (element type): as soon as a key's bytes reach
 * its limit, its tensors become a bucket and the key moves on to the next limit (the last limit is
 * used again). So a bucket may exceed its limit by one whole tensor, and the first limit applies
 * once to every key. A sparse tensor is a bucket of its own, with limit 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_bucket_tensor {
    uint64_t bytes;
    int key; /* only equal keys may share a bucket */
    bool sparse;
};

struct ct_bucket_plan {
    size_t count;
    size_t *members; /* owned; tensor indices, bucket after bucket */
    size_t *starts;  /* owned; count + 1 of them: where in members each bucket begins */
    uint64_t *limits; /* owned; under which each was built */
};

/* Assigns `count` tensors. order: NULL (0, 1, 2, ... and the buckets sorted by their smallest
 * index), or a permutation (the buckets stay in the order in which they filled up; those never
 * filled come last, in the order of their keys' first tensors). 0 or -ENOMEM; then `out` needs no
 * deinit. */
int ct_bucket_assign(struct ct_bucket_plan *out, const struct ct_bucket_tensor *tensors,
                     size_t count, const size_t *order, const uint64_t *limits,
                     size_t limit_count);
/* Reverses the order of the buckets, not the order of their members. 0 or -ENOMEM. */
int ct_bucket_plan_reverse(struct ct_bucket_plan *plan);
/* Takes over members and bucket sizes that another rank computed: 0, -EBADMSG when they do not
 * name each of 0..count-1 once, -ENOMEM. */
int ct_bucket_plan_import(struct ct_bucket_plan *out, const int32_t *members,
                          size_t count, const int32_t *sizes, size_t bucket_count);
/* Accepts a zeroed one. */
void ct_bucket_plan_deinit(struct ct_bucket_plan *plan);
