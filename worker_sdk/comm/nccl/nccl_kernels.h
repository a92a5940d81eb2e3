/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of device_kernel.h as PTX, which the driver compiles for whatever device there is: so the plug-in
 * needs no compiler for it, and no header. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

struct ct_nccl_kernels {
    CUmodule module; /* NULL: none of them was wanted yet */
    CUfunction of[CT_DEVICE_KERNEL_COUNT];
};

/* Puts one on the stream, and loads them all before the first. The device is current, and one of its runtime's
 * calls has been made. CTRUN_E_UNSUPPORTED where the driver does not take them. */
int ct_nccl_kernels_launch(struct ct_nccl_kernels *kernels, enum ct_device_kernel which,
                           const struct ct_device_args *args, cudaStream_t stream,
                           struct ctrun_error *err);
/* The PTX, for tests. */
const char *ct_nccl_kernels_text(void);
/* Accepts a zeroed one. */
void ct_nccl_kernels_unload(struct ct_nccl_kernels *kernels);
