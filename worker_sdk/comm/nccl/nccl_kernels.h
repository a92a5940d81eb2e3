/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of device_kernel.h as PTX, which the driver compiles for the device: so the plug-in
 * needs neither a CUDA compiler nor CUDA headers. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

struct ct_nccl_kernels {
    struct ct_nccl_kernels *next;
    int device;
    CUfunction of[CT_DEVICE_KERNEL_COUNT];
};

/* The kernels of `device`, which is current and on which a runtime call has been made; loaded at
 * the first call, until the process ends. To be called before work that waits for other ranks: the
 * driver may wait for the device when it loads code. CTRUN_E_UNSUPPORTED if it does not accept the
 * kernels. Any thread. */
int ct_nccl_kernels_get(const struct ct_nccl_kernels **out, int device,
                        struct ctrun_error *err);
/* Puts a kernel on the stream. */
int ct_nccl_kernels_launch(const struct ct_nccl_kernels *kernels,
                           enum ct_device_kernel which,
                           const struct ct_device_args *args, cudaStream_t stream,
                           struct ctrun_error *err);
/* The PTX, for tests. */
const char *ct_nccl_kernels_text(void);
