/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of device_kernel.h as PTX, which the driver compiles for the device: so the plug-in
 * needs neither a CUDA compiler nor CUDA headers. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

struct ct_nccl_kernels {
    CUmodule module; /* NULL: no kernel was launched yet */
    CUfunction of[CT_DEVICE_KERNEL_COUNT];
};

/* Puts a kernel on the stream; the first call loads all kernels. The device is current, and a
 * runtime call has been made on it. CTRUN_E_UNSUPPORTED if the driver does not accept the
 * kernels. */
int ct_nccl_kernels_launch(struct ct_nccl_kernels *kernels, enum ct_device_kernel which,
                           const struct ct_device_args *args, cudaStream_t stream,
                           struct ctrun_error *err);
/* The PTX, for tests. */
const char *ct_nccl_kernels_text(void);
/* Accepts a zeroed one. */
void ct_nccl_kernels_unload(struct ct_nccl_kernels *kernels);
