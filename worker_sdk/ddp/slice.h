/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO-1's flat form (option shard_gradients): each rank gets the averages of its slice of a bucket
 * alone.
 *
 *     bucket  | rank 0 | rank 1 | ... | last rank | tail |
 *
 * Slices are of equal length, and whole multiples of 16 bytes. The tail, what is left over, is
 * averaged on all ranks, and belongs to the last one. The flag of layout.h is always in a tail:
 * slots begin and end at multiples of 256 bytes. */
#pragma once

#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/ddp/shares.h"

/* Where slot s is in its bucket, and how that is cut. */
struct ct_cut ct_slice_cut(const struct ct_layout *layout, size_t s);
/* This rank's part of slot s, maybe of no length; all of it without slices. `param` is the slot's. */
struct ct_piece ct_slice_own(const struct ct_layout *layout, size_t s);
/* Starts the reduction of a bucket behind the gradients on `stream`. data: where its elements are,
 * of `dtype`, perhaps not the bucket's own. The caller waits for the bucket's works. */
int ct_slice_reduce(struct ct_layout *layout, struct ct_bucket *bucket, void *data,
                    enum ctrun_dtype dtype, enum ctrun_op op, void *stream,
                    struct ctrun_error *err);
/* On a device: frees these works, for which nobody will wait. */
int ct_slice_let_go(struct ct_bucket *bucket, struct ctrun_error *err);
