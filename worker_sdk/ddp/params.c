/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/params.h"

#include <errno.h>

#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"

int ct_ddp_param_check(const struct ctrun_param *param, size_t p,
                       struct ctrun_error *err)
{
    size_t bytes = ctrun_dtype_size(param->dtype);

    if (!param->name)
        return ct_fail(err, -EINVAL, "params[%zu] has no name", p);
    if (bytes == 0)
        return ct_fail(err, -EINVAL, "params[%zu] '%s': no such dtype: %d", p,
                       param->name, (int)param->dtype);
    if (!param->no_grad && !ct_dtype_is_float(param->dtype))
        return ct_fail(err, -EINVAL,
                       "params[%zu] '%s': only a floating-point dtype can have a "
                       "gradient: set no_grad",
                       p, param->name);
    if (param->is_buffer && !param->no_grad)
        return ct_fail(err, -EINVAL,
                       "params[%zu] '%s': a buffer gets no gradient: set no_grad", p,
                       param->name);
    if (param->dims < 0 || param->dims > CTRUN_MAX_DIMS)
        return ct_fail(err, -EINVAL,
                       "params[%zu] '%s' has %d dimensions, but there can be 0 to %d",
                       p, param->name, param->dims, CTRUN_MAX_DIMS);
    for (int i = 0; i < param->dims; i++)
        if (param->sizes[i] < 0 ||
            __builtin_mul_overflow(bytes, param->sizes[i], &bytes))
            return ct_fail(err, -EINVAL,
                           "params[%zu] '%s': sizes[%d] is %lld, which is negative or "
                           "too large",
                           p, param->name, i, (long long)param->sizes[i]);
    if (bytes > 0 && !param->data)
        return ct_fail(err, -EINVAL, "params[%zu] '%s': data is NULL", p, param->name);
    return 0;
}

size_t ct_ddp_param_bytes(const struct ctrun_param *param)
{
    size_t bytes = ctrun_dtype_size(param->dtype);

    for (int i = 0; i < param->dims; i++)
        bytes *= (size_t)param->sizes[i];
    return bytes;
}
