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

const char *ct_dtype_name(int dtype)
{
    static const char *const names[] = {
        [CTRUN_U8] = "u8",   [CTRUN_I32] = "i32",   [CTRUN_I64] = "i64",
        [CTRUN_F16] = "f16", [CTRUN_BF16] = "bf16", [CTRUN_F32] = "f32",
        [CTRUN_F64] = "f64", [CTRUN_I8] = "i8",
    };

    return (size_t)dtype < sizeof names / sizeof *names ? names[dtype] : "?";
}
