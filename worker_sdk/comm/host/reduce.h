/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise reduction of several arrays into one or more: the arithmetic of all_reduce.
 *
 * For each element, in the order of `src`: result = src[0] op src[1] op ... ; floats are then
 * divided by `divisor`. f16 and bf16 are computed in f32 and rounded once, to nearest even.
 * Integers wrap around. MIN and MAX of a NaN are NaN. The same sources in the same order give the
 * same bits, whatever instruction set is used. Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "worker_sdk/include/ctrun.h"

struct ct_reduction {
    enum ctrun_dtype dtype;
    enum ctrun_op op; /* AVG adds like SUM and divides by `divisor` */
    int divisor;      /* 1: no division; else floats only */
};

/* dst[0..dst_count) all get the result; each may be one of the sources, or must overlap none. Needs
 * only the element's own alignment. */
void ct_reduce(const struct ct_reduction *how, void *const *dst, int dst_count,
               const void *const *src, int src_count, size_t count);

/* False for AVG of integers and for invalid values of dtype or op. */
bool ct_reduce_is_supported(enum ctrun_dtype dtype, enum ctrun_op op);

typedef void ct_reduce_fn(void *const *dst, int dst_count, const void *const *src,
                          int src_count, size_t count, float divisor);
/* One table per instruction set: [dtype][SUM, MIN, MAX, PROD]. For reduce.c and tests. */
enum {
    CT_REDUCE_DTYPES = CTRUN_I8 + 1,
    CT_REDUCE_OPS = 4
};
typedef ct_reduce_fn *ct_reduce_table[CT_REDUCE_DTYPES][CT_REDUCE_OPS];
extern const ct_reduce_table ct_reduce_plain;
extern const ct_reduce_table ct_reduce_avx2; /* x86-64 only */
