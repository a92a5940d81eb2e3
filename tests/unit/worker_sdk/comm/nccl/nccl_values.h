/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and layouts of the headers that were included before, as a table. One file includes ours,
 * one NVIDIA's. */
#pragma once

#include <stddef.h>

/* A value and its name, which the test prints. */
#define VALUE(x) ((struct nccl_value){#x, (long long)(x)})

struct nccl_value {
    const char *name;
    long long value;
};

enum {
    NCCL_VALUES_MAX = 80
};
/* Fills the table, and returns how many values there are. */
size_t nccl_values_theirs(struct nccl_value *values);

#define NCCL_VALUES                                                                    \
    VALUE(cudaSuccess), VALUE(cudaErrorMemoryAllocation), VALUE(cudaErrorNoDevice),    \
        VALUE(cudaErrorInvalidDevice), VALUE(cudaErrorInvalidResourceHandle),          \
        VALUE(cudaErrorNotReady), VALUE(cudaErrorIllegalAddress),                      \
        VALUE(cudaErrorUnknown), VALUE(cudaErrorStreamCaptureUnsupported),             \
        VALUE(cudaErrorStreamCaptureInvalidated),                                      \
        VALUE(cudaErrorStreamCaptureUnmatched), VALUE(cudaErrorStreamCaptureUnjoined), \
        VALUE(cudaErrorStreamCaptureIsolation), VALUE(cudaErrorCapturedEvent),         \
        VALUE(cudaStreamCaptureStatusNone), VALUE(cudaStreamCaptureStatusActive),      \
        VALUE(cudaStreamCaptureStatusInvalidated), VALUE(cudaStreamCaptureModeGlobal), \
        VALUE(cudaStreamCaptureModeThreadLocal), VALUE(cudaStreamCaptureModeRelaxed),  \
        VALUE(cudaMemoryTypeUnregistered), VALUE(cudaMemoryTypeHost),                  \
        VALUE(cudaMemoryTypeDevice), VALUE(cudaMemoryTypeManaged),                     \
        VALUE(cudaMemcpyHostToDevice), VALUE(cudaMemcpyDeviceToHost),                  \
        VALUE(cudaMemcpyDeviceToDevice), VALUE(cudaMemcpyDefault),                     \
        VALUE(cudaStreamNonBlocking), VALUE(cudaEventDisableTiming),                   \
        VALUE(cudaHostAllocDefault), VALUE(cudaDevAttrMultiProcessorCount),            \
        VALUE(sizeof(struct cudaPointerAttributes)),                                   \
        VALUE(offsetof(struct cudaPointerAttributes, hostPointer)),                    \
        VALUE(ncclSuccess), VALUE(ncclUnhandledCudaError), VALUE(ncclSystemError),     \
        VALUE(ncclInvalidArgument), VALUE(ncclInvalidUsage), VALUE(ncclRemoteError),   \
        VALUE(ncclInProgress), VALUE(ncclInt8), VALUE(ncclUint8), VALUE(ncclInt32),    \
        VALUE(ncclUint32), VALUE(ncclInt64), VALUE(ncclUint64), VALUE(ncclFloat16),    \
        VALUE(ncclFloat32), VALUE(ncclFloat64), VALUE(ncclBfloat16), VALUE(ncclSum),   \
        VALUE(ncclProd), VALUE(ncclMax), VALUE(ncclMin), VALUE(ncclAvg),               \
        VALUE(sizeof(ncclUniqueId)), VALUE(offsetof(ncclConfig_t, version)),           \
        VALUE(offsetof(ncclConfig_t, blocking)),                                       \
        VALUE(offsetof(ncclConfig_t, netName)),                                        \
        VALUE(offsetof(ncclConfig_t, splitShare)), VALUE(NCCL_SHRINK_ABORT),           \
        VALUE(NCCL_SPLIT_NOCOLOR), VALUE(NCCL_REVOKE_DEFAULT),                         \
        VALUE(((ncclConfig_t)NCCL_CONFIG_INITIALIZER).magic),                          \
        VALUE(((ncclConfig_t)NCCL_CONFIG_INITIALIZER).blocking)
