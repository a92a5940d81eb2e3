/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the loop by element type, operation and the features of this processor. */
#include <assert.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "worker_sdk/base/dtype.h"

#define KERNEL_TABLE ct_reduce_plain
#include "worker_sdk/comm/host/reduce_kernels.h"

static const ct_reduce_table *best_table(void)
{
#if defined(__x86_64__)
    static atomic_int has_avx2; /* 0 unknown, 1 yes, -1 no: asking takes some µs */
    int known = atomic_load_explicit(&has_avx2, memory_order_relaxed);

    if (known == 0) {
        unsigned a, b, c, d;
        bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
        known = f16c && __builtin_cpu_supports("avx2") ? 1 : -1;
        atomic_store_explicit(&has_avx2, known, memory_order_relaxed);
    }
    if (known > 0)
        return &ct_reduce_avx2;
#endif
    return &ct_reduce_plain;
}

bool ct_reduce_is_supported(enum ctrun_dtype dtype, enum ctrun_op op)
{
    if (ctrun_dtype_size(dtype) == 0 || (unsigned)op > CTRUN_PROD)
        return false;
    return op != CTRUN_AVG || ct_dtype_is_float(dtype);
}

void ct_reduce(const struct ct_reduction *how, void *const *dst, int dst_count,
               const void *const *src, int src_count, size_t count)
{
    static const int column[] = {[CTRUN_SUM] = 0,
                                 [CTRUN_AVG] = 0,
                                 [CTRUN_MIN] = 1,
                                 [CTRUN_MAX] = 2,
                                 [CTRUN_PROD] = 3};

    assert(ct_reduce_is_supported(how->dtype, how->op));
    (*best_table())[how->dtype][column[how->op]](dst, dst_count, src, src_count, count,
                                                 (float)how->divisor);
}
