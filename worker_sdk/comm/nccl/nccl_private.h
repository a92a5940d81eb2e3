/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the NCCL back end share: the functions of the libraries, the group, its calls. Each file uses only
 * functions that are declared above its own here. nccl.c describes how it works. */
#pragma once

#include <pthread.h>

#include "worker_sdk/base/list.h"
#include "worker_sdk/comm/backend/backend.h"
#include "worker_sdk/comm/backend/verdict.h"
#include "worker_sdk/comm/nccl/nccl_api.h"
#include "worker_sdk/comm/nccl/nccl_kernels.h"

/* Every function that we need, by the library's own name. */
#define CT_NCCL_FUNCTIONS(X)                                                           \
    X(ncclGetVersion)                                                                  \
    X(ncclGetUniqueId)                                                                 \
    X(ncclCommInitRankConfig)                                                          \
    X(ncclCommGetAsyncError)                                                           \
    X(ncclCommAbort)                                                                   \
    X(ncclCommFinalize)                                                                \
    X(ncclCommDestroy)                                                                 \
    X(ncclAllReduce)                                                                   \
    X(ncclReduce)                                                                      \
    X(ncclReduceScatter)                                                               \
    X(ncclGroupStart)                                                                  \
    X(ncclGroupEnd)                                                                    \
    X(ncclBroadcast) X(ncclAllGather) X(ncclSend) X(ncclRecv) X(ncclGetErrorString)
#define CT_CUDA_FUNCTIONS(X)                                                           \
    X(cudaGetDevice)                                                                   \
    X(cudaSetDevice)                                                                   \
    X(cudaDeviceSynchronize)                                                           \
    X(cudaStreamCreateWithFlags)                                                       \
    X(cudaStreamWaitEvent)                                                             \
    X(cudaStreamIsCapturing)                                                           \
    X(cudaThreadExchangeStreamCaptureMode)                                             \
    X(cudaStreamDestroy)                                                               \
    X(cudaEventCreateWithFlags)                                                        \
    X(cudaEventRecord)                                                                 \
    X(cudaEventQuery)                                                                  \
    X(cudaEventDestroy)                                                                \
    X(cudaMalloc)                                                                      \
    X(cudaMemset)                                                                      \
    X(cudaMemsetAsync)                                                                 \
    X(cudaMemcpyAsync)                                                                 \
    X(cudaFree)                                                                        \
    X(cudaHostAlloc)                                                                   \
    X(cudaFreeHost) X(cudaPointerGetAttributes) X(cudaGetErrorString)

/* Functions of a newer NCCL, and since which version. NULL where it does not have them. */
#define CT_NEWER_FUNCTIONS(X)                                                          \
    X(ncclCommInitRankScalable, 22300)                                                 \
    X(ncclMemAlloc, 21900)                                                             \
    X(ncclMemFree, 21900)                                                              \
    X(ncclCommRegister, 21900)                                                         \
    X(ncclCommDeregister, 21900)                                                       \
    X(ncclCommShrink, 22703)                                                           \
    X(ncclCommRevoke, 22807)

/* Filled in by ct_nccl_load(); read only from then on. */
extern struct ct_nccl_functions {
#define MEMBER(name)              __typeof__(name) *name;
#define NEWER_MEMBER(name, since) MEMBER(name)
    CT_NCCL_FUNCTIONS(MEMBER)
    CT_CUDA_FUNCTIONS(MEMBER)
    CT_NEWER_FUNCTIONS(NEWER_MEMBER)
#undef NEWER_MEMBER
#undef MEMBER
} ct_nccl_api;

/* Memory of ctrun_group_alloc(): NCCL's own, which it need not copy to send, or CUDA's. */
struct block {
    struct block *next;
    void *data;
    bool is_nccls;
    bool is_given_back; /* and still registered with a communicator that is revoked */
    void *handle;       /* NULL: it is not registered with the communicator */
};

/* A call on its way. */
struct ticket {
    struct ct_list node; /* in `running`, in their order, in `recorded` or in `spare` */
    cudaEvent_t done;
    struct ct_call call;
    bool is_captured; /* it is part of a graph: no event tells when it has run */
    bool is_placed; /* `done` is on the stream; before that it is of an earlier call */
    bool is_released; /* its caller no longer waits for it */
    bool is_done;
    /* Data on the host goes through these, `room` bytes each; kept for the next call. */
    void *pinned;
    void *device;
    size_t room;
    size_t fetched; /* bytes that are copied from `pinned` to call.out in the end */
};

struct nccl {
    ncclComm_t comm; /* NULL once aborted */
    bool is_kept;    /* a smaller one may be made of it */
    bool is_stopped; /* it is ended: comm is for ncclCommShrink() alone */
    bool has_recorded;
    cudaStream_t stream;
    cudaEvent_t joined; /* of callers' streams */
    int device, size, me;
    void *scratch; /* one float, for barriers */
    struct block *blocks;
    struct ct_nccl_kernels kernels;
    struct ct_verdict verdict;
    struct ct_loss_watch losses;
    pthread_mutex_t lock; /* also of the lists and is_closing */
    struct ct_list running;
    struct ct_list recorded; /* into a graph, until they are spent */
    struct ct_list spare;
    pthread_cond_t released; /* signalled when a call is released */
    bool is_closing;
    bool has_thread;
    pthread_t thread;
};

/* ---- nccl_library.c: the libraries, opened at run time; they stay open */

/* Finds all functions. 0 or a code that names what is missing. Any thread. */
int ct_nccl_load(struct ctrun_error *err);
int ct_nccl_cuda_fail(struct ctrun_error *err, const char *what, cudaError_t code);
int ct_nccl_fail(struct ctrun_error *err, const char *what, ncclResult_t code);

/* ---- nccl_wait.c: polls of the device and the communicator, each with a deadline */

enum {
    CT_NCCL_NAP_MIN_NS = 2000
};
/* Sleeps *ns between polls, which doubles up to a maximum; starts at CT_NCCL_NAP_MIN_NS. */
void ct_nccl_nap(long *ns);
/* 1 when the communicator is idle, 0 while it works on the last call, or why the group cannot go on. Lock held. */
int ct_nccl_ask_comm(struct nccl *nccl, const char *what, struct ctrun_error *err);
/* Waits until the communicator is idle: 0 or a code. The lock is free while it naps, for an abort. */
int ct_nccl_settle(struct nccl *nccl, const char *what, uint64_t deadline_ms,
                   struct ctrun_error *err);
/* 1 when the device has finished the call, 0 not yet. Lock held. */
int ct_nccl_ask_device(struct nccl *nccl, struct ticket *ticket,
                       struct ctrun_error *err);
int ct_nccl_fail_late(const struct ticket *ticket, struct ctrun_error *err);

/* ---- nccl_abort.c: the end of a group that failed. All take the lock */

/* ct_backend_ops.abort: the first reason stays. Any thread, again and again. One that may be followed by a smaller
 * communicator is only stopped. */
void ct_nccl_abort(void *self, int code, const char *text);
/* A failure ends the group; returns the first reason. */
int ct_nccl_fail_group(struct nccl *nccl, int rc, const struct ctrun_error *why,
                       struct ctrun_error *err);
/* Waits until the device has finished all calls, so that their memory may be freed. */
void ct_nccl_finish_running(struct nccl *nccl);

/* ---- nccl_memory.c: memory of the group */

/* ct_backend_ops.alloc and .free. A free waits for running calls and for kernels of the caller. */
int ct_nccl_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                  struct ctrun_error *err);
int ct_nccl_free(void *self, void *at);
/* Ends a communicator that was stopped, and frees the memory that waited for it: no smaller one will be made of it. */
void ct_nccl_end_stopped(struct nccl *nccl);

/* ---- nccl_id.c: members find each other through the store */

/* A value of the store; the caller frees it. Waits until it is there or a rank of the world is lost: member 0 may die
 * before it sets it. */
int ct_nccl_get_value(const struct ct_backend_setup *setup, const char *key,
                      void **value, size_t *length, struct ctrun_error *err);
int ct_nccl_make_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err);

/* ---- nccl_shrink.c: a communicator of what is left of another */

/* Makes a new communicator, or setup->old smaller. In the end the old one is gone; it is kept until it is known what
 * the other ranks can do. */
int ct_nccl_init_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err);

/* ---- nccl_ticket.c: calls on their way */

/* An unused ticket, in no list; NULL: it could not be made. Takes the lock. */
struct ticket *ct_nccl_take_ticket(struct nccl *nccl, struct ctrun_error *err);
/* To `spare`. Lock held. */
void ct_nccl_spend(struct nccl *nccl, struct ticket *ticket);
/* Called when no other thread uses the group any more. */
void ct_nccl_free_tickets(struct ct_list *list);

/* ---- nccl_stage.c: calls whose buffers lie on the host */

/* More than one message. */
bool ct_nccl_is_exchange(const struct ct_call *call);
/* Whether this rank's `in` is read. */
bool ct_nccl_gives(const struct nccl *nccl, const struct ct_call *call);
/* How many bytes of this rank's `out` are written. */
size_t ct_nccl_out_bytes(const struct nccl *nccl, const struct ct_call *call);
bool ct_nccl_is_host_memory(const void *at, size_t bytes);
/* Where the device reads `in`: there, or a copy of it that the stream makes. After ct_nccl_stage_out(). */
cudaError_t ct_nccl_stage_in(struct nccl *nccl, struct ticket *ticket, const void **in);
/* Where the device writes `out`; data for the host is fetched in the end. */
cudaError_t ct_nccl_stage_out(struct nccl *nccl, struct ticket *ticket, void **out);
/* Messages are not staged: the device must reach them. */
int ct_nccl_check_messages(const struct ct_call *call, struct ctrun_error *err);

/* ---- nccl_capture.c: calls that become part of a graph */

/* *is_captured: the call is to be recorded. Fails when it cannot be. */
int ct_nccl_find_capture(struct nccl *nccl, const struct ct_call *call,
                         cudaStream_t stream, bool *is_captured,
                         struct ctrun_error *err);
int ct_nccl_fail_captured(struct ctrun_error *err);
/* Makes the stream wait for all that the group's own has in the capture. Takes the lock. */
int ct_nccl_release_captured(struct nccl *nccl, struct ticket *ticket,
                             void *const *stream, struct ctrun_error *err);

/* ---- nccl_call.c: ct_backend_ops.enqueue and .poll */

int ct_nccl_enqueue(void *self, const struct ct_call *call, void *stream, void **out,
                    struct ctrun_error *err);
int ct_nccl_poll(void *self, void *opaque, bool wait, struct ctrun_error *err);

/* ---- nccl_watch.c: a thread for calls that nobody waits for */

/* ct_backend_ops.release. Starts the thread. */
int ct_nccl_release(void *self, void *opaque, void *const *stream,
                    struct ctrun_error *err);
void ct_nccl_stop_watch(struct nccl *nccl);
