/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_nccl fake_nccl;

enum {
    RECENT = 22800,
    LARGE = 1 << 20
};

struct ncclComm {
    int polls; /* answers "in progress" to come; -1: no other */
};

static int device_polls; /* of the last call */

/* ---- NCCL ------------------------------------------------------------------------------- */

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = fake_nccl.version ? fake_nccl.version : RECENT;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 7, sizeof *id);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                           int rank, ncclConfig_t *config)
{
    if (fake_nccl.refuse_init)
        return (ncclResult_t)fake_nccl.refuse_init;
    if (rank < 0 || rank >= size || id.internal[0] != 7 || config->blocking != 0)
        return ncclInvalidArgument;
    if (!(*comm = calloc(1, sizeof **comm)))
        return ncclSystemError;
    fake_nccl.blocks++;
    (*comm)->polls = fake_nccl.init_polls;
    return fake_nccl.init_polls ? ncclInProgress : ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    *state = comm->polls ? ncclInProgress : ncclSuccess;
    if (comm->polls > 0)
        comm->polls--;
    if (fake_nccl.async_error)
        *state = (ncclResult_t)fake_nccl.async_error;
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm, int *count)
{
    ++*count;
    fake_nccl.blocks--;
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return end(comm, &fake_nccl.aborts);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return (ncclResult_t)fake_nccl.finalize_code;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(comm, &fake_nccl.destroys);
}

static size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
    }
}

/* Alone in the world every collective is a copy. */
static ncclResult_t call(const void *in, void *out, size_t count, ncclDataType_t type,
                         ncclComm_t comm)
{
    if (fake_nccl.refuse_call)
        return (ncclResult_t)fake_nccl.refuse_call;
    if (in != out && in && out)
        memmove(out, in, count * size_of(type));
    fake_nccl.calls++;
    comm->polls = fake_nccl.call_polls;
    device_polls = fake_nccl.device_polls;
    return comm->polls ? ncclInProgress : ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                  ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream)
{
    (void)op;
    (void)stream;
    return call(in, out, count, type, comm);
}

EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                  ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream)
{
    (void)root;
    (void)stream;
    return call(in, out, count, type, comm);
}

EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                  ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream)
{
    (void)stream;
    return call(in, out, count, type, comm);
}

EXPORT ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream)
{
    (void)peer;
    (void)stream;
    return call(in, NULL, count, type, comm);
}

EXPORT ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    (void)peer;
    (void)stream;
    return call(NULL, out, count, type, comm);
}

EXPORT const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError ? "the fake peer is gone" : "a fake NCCL error";
}

/* ---- CUDA ------------------------------------------------------------------------------- */

EXPORT cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return fake_nccl.no_device ? cudaErrorNoDevice : cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (fake_nccl.no_memory && bytes >= LARGE)
        return cudaErrorMemoryAllocation;
    if (!(*out = malloc(bytes)))
        return cudaErrorMemoryAllocation;
    fake_nccl.blocks++;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemset(void *data, int value, size_t bytes)
{
    memset(data, value, bytes);
    return cudaSuccess;
}

EXPORT cudaError_t cudaFree(void *data)
{
    fake_nccl.blocks--;
    free(data);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    void *event = NULL;

    (void)flags;
    if (cudaMalloc(&event, 1) != cudaSuccess)
        return cudaErrorMemoryAllocation;
    *out = event;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    if (device_polls == 0)
        return cudaSuccess;
    if (device_polls > 0)
        device_polls--;
    return cudaErrorNotReady;
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return cudaFree(event);
}

EXPORT const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorNoDevice ? "no fake device" : "a fake CUDA error";
}
