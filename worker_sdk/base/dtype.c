/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, for groups, gradients and checkpoints alike. */
#include "worker_sdk/base/dtype.h"

size_t ctrun_dtype_size(enum ctrun_dtype dtype)
{
    switch (dtype) {
    case CTRUN_I8:
    case CTRUN_U8: return 1;
    case CTRUN_F16:
    case CTRUN_BF16: return 2;
    case CTRUN_I32:
    case CTRUN_F32: return 4;
    case CTRUN_I64:
    case CTRUN_F64: return 8;
    }
    return 0;
}

bool ct_dtype_is_float(enum ctrun_dtype dtype)
{
    return dtype == CTRUN_F16 || dtype == CTRUN_BF16 || dtype == CTRUN_F32 ||
           dtype == CTRUN_F64;
}
