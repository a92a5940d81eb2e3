/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of NCCL 2.18 and the CUDA runtime 12 that the NCCL back end uses, declared here so that
 * the plug-in can be built where neither is installed. Names, numbers and layouts are those of
 * their headers; they stay the same, because programs built long ago must run with them.
 * nccl_api_test compares them if the headers are installed. Nothing is linked: nccl_library.c opens
 * the libraries at run time. */
#pragma once

#include <limits.h>
#include <stddef.h>

/* ---- CUDA runtime ------------------------------------------------------------------------ */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorCapturedEvent = 907,
    cudaErrorUnknown = 999
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
    long reserved[8]; /* since 13 */
};

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device);
cudaError_t cudaMemGetInfo(size_t *unused, size_t *total); /* of the current device */
cudaError_t cudaDeviceSynchronize(void);
/* Only tests call the first one. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
/* A higher priority is a lower number. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                         int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *out);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaFree(void *data);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at);
const char *cudaGetErrorString(cudaError_t code);

/* Of CUDA 12 and newer, for tests: the back end uses no graphs itself. */
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

/* ---- CUDA driver ------------------------------------------------------------------------- */

typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_UNKNOWN = 999
} CUresult;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
CUresult cuModuleUnload(CUmodule module);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                        void **params, void **extra);

/* ---- NCCL -------------------------------------------------------------------------------- */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4
} ncclRedOp_t;

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

/* As in 2.18; newer versions add members behind these, and `size` tells that ours ends here. */
typedef struct {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                        \
    {                                                                                  \
        sizeof(ncclConfig_t), 0xcafebeef, 21800, INT_MIN, INT_MIN, INT_MIN, INT_MIN,   \
            NULL, INT_MIN                                                              \
    }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config);
/* Since 2.18.1. Members with the same color get a communicator, in the order of their keys; with
 * NCCL_SPLIT_NOCOLOR *out becomes NULL. *out is valid once `comm` is no longer in progress. All
 * ranks of comm make the call, and nothing of comm's may still run. */
enum {
    NCCL_SPLIT_NOCOLOR = -1
};
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config);
/* Since 2.27. *out is valid once `comm` is no longer in progress. `excluded` are ranks of comm: one
 * or more. */
enum {
    NCCL_SHRINK_ABORT = 1, /* ends the running calls of comm first */
    NCCL_REVOKE_DEFAULT = 0
};
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *out,
                            ncclConfig_t *config, int flags);
/* Since 2.28.7: ends the running calls of comm. After that comm can only be shrunk
 * (ncclCommShrink()) or aborted. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
/* Since 2.23: with id_count ids, so that only size / id_count members connect to each root. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int size, int rank, int id_count,
                                      ncclUniqueId *ids, ncclConfig_t *config);
/* These four since 2.19. */
ncclResult_t ncclMemAlloc(void **out, size_t bytes);
ncclResult_t ncclMemFree(void *data);
ncclResult_t ncclCommRegister(ncclComm_t comm, void *data, size_t bytes, void **handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
const char *ncclGetErrorString(ncclResult_t code);
