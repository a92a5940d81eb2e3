/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the NCCL back end: the libraries' functions, the group, its calls. Each
 * file uses only functions that are declared here above its own. nccl.c describes how it works. */
#pragma once

#include <pthread.h>

#include "worker_sdk/base/list.h"
#include "worker_sdk/comm/backend/backend.h"
#include "worker_sdk/comm/backend/verdict.h"
#include "worker_sdk/comm/nccl/nccl_api.h"
#include "worker_sdk/comm/nccl/nccl_kernels.h"

/* Every function that we need, by its name in the library. */
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
    X(cudaDeviceGetAttribute)                                                          \
    X(cudaMemGetInfo)                                                                  \
    X(cudaDeviceSynchronize)                                                           \
    X(cudaStreamCreateWithPriority)                                                    \
    X(cudaDeviceGetStreamPriorityRange)                                                \
    X(cudaStreamWaitEvent)                                                             \
    X(cudaStreamIsCapturing)                                                           \
    X(cudaThreadExchangeStreamCaptureMode)                                             \
    X(cudaStreamDestroy)                                                               \
    X(cudaEventCreateWithFlags)                                                        \
    X(cudaEventRecord)                                                                 \
    X(cudaEventQuery)                                                                  \
    X(cudaEventDestroy)                                                                \
    X(cudaMalloc)                                                                      \
    X(cudaMemsetAsync)                                                                 \
    X(cudaMemcpyAsync)                                                                 \
    X(cudaFree)                                                                        \
    X(cudaHostAlloc)                                                                   \
    X(cudaFreeHost) X(cudaPointerGetAttributes) X(cudaGetErrorString)

/* Functions of newer NCCL versions, with the first version. NULL if the library does not have
 * them. */
#define CT_NEWER_FUNCTIONS(X)                                                          \
    X(ncclCommSplit, 21801)                                                            \
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

/* Memory of ctrun_group_alloc(): allocated by NCCL, which sends from it without a copy, or by
 * CUDA. */
struct block {
    struct block *next;
    void *data;
    bool is_nccls;
    bool is_given_back; /* freed, but still registered with a stopped communicator */
    void *handle;       /* NULL: it is not registered with the communicator */
};

/* A call in flight. */
struct ticket {
    struct ct_list node; /* in `running` (in order), in `recorded` or in `spare` */
    cudaEvent_t done;
    struct ct_call call;
    uint64_t began_ms;
    bool is_captured; /* part of a graph: no event tells when it has run */
    bool is_placed;   /* `done` is on the stream; before, it is an earlier call's */
    bool is_released; /* its caller no longer waits for it */
    bool is_done;
    /* Data on the host are copied through these buffers of `room` bytes each; kept for the next
     * call. */
    void *pinned;
    void *device;
    size_t room;
    size_t fetched; /* bytes to copy from `pinned` to call.out at the end */
};

enum {
    CT_NCCL_FIRSTS = 64 /* calls that are compared when they are new to the group */
};

struct nccl {
    ncclComm_t comm;           /* NULL once aborted */
    bool is_kept;              /* a smaller communicator may be made of it */
    bool is_stopped;           /* comm has ended and serves only ncclCommShrink() */
    _Atomic bool is_splitting; /* others may wait in ncclCommSplit() for this member */
    bool has_recorded;
    cudaStream_t stream;
    cudaEvent_t
        joined; /* recorded where a stream or the host is to wait, and free again at once */
    int device, size, me;
    void *scratch; /* one float, for barriers */
    struct block *blocks;
    const struct ct_nccl_kernels *kernels;
    struct ct_verdict verdict;
    struct ct_loss_watch losses;
    struct ct_board
        board; /* read is NULL until the id is known, or where there is none */
    char key
        [CT_BOOTSTRAP_KEY_MAX]; /* with a hash of the id: a store may outlive the group */
    uint32_t id_hash;
    int rank;                        /* in the world */
    int *ranks;                      /* owned; of each member */
    uint64_t firsts[CT_NCCL_FIRSTS]; /* hashes; of the thread in a call */
    int first_count;
    int first_failures; /* of the store, while they were compared; of the same thread */
    uint64_t
        calls; /* collectives outside of captures, which one member may throw away: the same
                     * number on all members; of the thread in a call */
    uint64_t
        noted; /* the last collective that we left a note of; of the thread that looks */
    _Atomic bool is_leaving; /* it is being closed, and tells the others nothing more */
    _Atomic uint64_t look_ms; /* when to read the board again */
    pthread_mutex_t lock;     /* guards NCCL calls, the lists and is_closing */
    struct ct_list running;
    struct ct_list recorded; /* tickets of calls in a graph, until spent */
    struct ct_list spare;
    pthread_cond_t released; /* signalled when a call is released */
    bool is_closing;
    bool has_thread;
    pthread_t thread;
};

/* ---- nccl_library.c: the libraries, opened at run time; they stay open */

/* Finds all functions. 0 or a negative code, with an error that names what is missing. Any
 * thread. */
int ct_nccl_load(struct ctrun_error *err);
int ct_nccl_cuda_fail(struct ctrun_error *err, const char *what, cudaError_t code);
int ct_nccl_fail(struct ctrun_error *err, const char *what, ncclResult_t code);

/* ---- nccl_notes.c: what members tell each other through the store. None of it with the lock held:
 * a request may take half a second. Any thread */

/* Sets the verdict: to the reason of the member that was the first to have one, with its rank in
 * front. */
void ct_nccl_publish(struct nccl *nccl, int code, const char *text);
/* The same if another member has told one. Only where there is a board. */
void ct_nccl_read_reason(struct nccl *nccl);
/* From now on members can leave notes: id_hash is known. */
void ct_nccl_open_board(struct nccl *nccl, const struct ct_backend_setup *setup);
/* The key `what` of the group. */
void ct_nccl_name_key(const struct nccl *nccl, char key[CT_BOOTSTRAP_KEY_MAX],
                      const char *what);

/* ---- nccl_compare.c: whether all members make the same collectives. Without the lock, too */

/* A collective of a rank. In the store these are decimal numbers in this order; kind to count must
 * be equal on all ranks. */
struct ct_nccl_note {
    uint64_t rank, number, kind, dtype, op, peer, count;
};
struct ct_nccl_note ct_nccl_note_of(const struct nccl *nccl,
                                    const struct ct_call *call);
void ct_nccl_format_note(char text[CT_NOTE_MAX], const struct ct_nccl_note *note);
/* False: no member has written this. */
bool ct_nccl_parse_note(const char *text, struct ct_nccl_note *note);
/* The key KIND/NUMBER of the group. */
void ct_nccl_name_note(const struct nccl *nccl, char key[CT_BOOTSTRAP_KEY_MAX],
                       const char *kind, uint64_t number);
/* Both set the verdict where another member makes another call of the same number. */
void ct_nccl_compare_first(struct nccl *nccl, const struct ct_call *call);
void ct_nccl_compare_late(struct nccl *nccl, const struct ct_call *call);

/* ---- nccl_late.c: calls that are not done soon. Without the lock, too */

/* Called again and again while a call that began at since_ms is not done; asks the store now and
 * then. Sets the verdict if another member has told a reason. */
void ct_nccl_look(struct nccl *nccl, uint64_t since_ms);
/* Replaces the text of a time-out, if the store tells which ranks have not come to the call. */
void ct_nccl_name_missing(struct nccl *nccl, struct ctrun_error *why);

/* ---- nccl_wait.c: polls of the device and the communicator, each with a deadline */

struct ct_nccl_wait {
    long nap_ns;
    uint64_t since_ms;
};
struct ct_nccl_wait ct_nccl_wait_begin(void);
/* Sleeps, longer each time up to a maximum, and looks what other members tell. */
void ct_nccl_nap(struct nccl *nccl, struct ct_nccl_wait *wait);
/* 1 when the communicator is idle, 0 while it works on the last call, or the code why the group has
 * failed. Lock held. */
int ct_nccl_ask_comm(struct nccl *nccl, const char *what, struct ctrun_error *err);
/* Waits until the communicator is idle: 0 or a code. The lock is released during sleeps, for an
 * abort. */
int ct_nccl_settle(struct nccl *nccl, const char *what, uint64_t deadline_ms,
                   struct ctrun_error *err);
/* 1 when the device has finished the call, 0 not yet. Lock held. */
int ct_nccl_ask_device(struct nccl *nccl, struct ticket *ticket,
                       struct ctrun_error *err);
int ct_nccl_fail_late(const struct ticket *ticket, struct ctrun_error *err);

/* ---- nccl_abort.c: the end of a group that failed. All functions take the lock */

/* ct_backend_ops.abort: the first reason stays. Any thread, any number of times. If a smaller
 * communicator may follow, the communicator is only stopped. */
void ct_nccl_abort(void *self, int code, const char *text);
/* Ends the group because of a failure; returns the first reason. */
int ct_nccl_fail_group(struct nccl *nccl, int rc, const struct ctrun_error *why,
                       struct ctrun_error *err);
/* Waits until the device has finished all calls, so that their memory may be freed. */
void ct_nccl_finish_running(struct nccl *nccl);

/* ---- nccl_memory.c: memory of the group */

/* ct_backend_ops.alloc and .free. alloc waits until the memory is zero, behind running calls. free
 * waits for running calls and for kernels of the caller. */
int ct_nccl_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                  struct ctrun_error *err);
int ct_nccl_free(void *self, void *at);
/* ct_backend_ops.describe_device and .find_device. */
void ct_nccl_describe_device(void *self, struct ct_device_facts *out);
int ct_nccl_find_device(void *self, const void *data);
/* Aborts a stopped communicator and frees the memory that waited for that: no smaller communicator
 * will be made of it. */
void ct_nccl_end_stopped(struct nccl *nccl);

/* ---- nccl_id.c: members find each other through the store */

/* Gets a value of the store; the caller frees it. Waits until the key exists or a rank of the world
 * is lost: member 0 may die before it sets the key. */
int ct_nccl_get_value(const struct ct_backend_setup *setup, const char *key,
                      void **value, size_t *length, struct ctrun_error *err);
/* How every communicator of the group is made. */
ncclConfig_t ct_nccl_config(const struct ctrun_group_options *options);
int ct_nccl_make_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err);

/* ---- nccl_split.c: a communicator of some members of another */

/* ct_backend_ops.can_split, .set_splitting and .split_none. */
bool ct_nccl_can_split(void *self);
void ct_nccl_set_splitting(void *self, bool is_splitting);
int ct_nccl_split_none(void *self, uint64_t deadline_ms, struct ctrun_error *err);
/* Makes the communicator out of that of setup->parent, which ends if this fails. */
int ct_nccl_split(struct nccl *nccl, const struct ct_backend_setup *setup,
                  struct ctrun_error *err);

/* ---- nccl_shrink.c: a communicator of the members that are left of another */

/* Makes a new communicator, or shrinks that of setup->old. The old communicator is kept until all
 * ranks have told whether they can shrink; afterwards it is gone. */
int ct_nccl_init_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err);

/* ---- nccl_ticket.c: calls in flight */

/* Returns an unused ticket, in no list; NULL on failure. Takes the lock. */
struct ticket *ct_nccl_take_ticket(struct nccl *nccl, struct ctrun_error *err);
/* Moves the ticket to `spare`. Lock held. */
void ct_nccl_spend(struct nccl *nccl, struct ticket *ticket);
/* Called when no other thread uses the group any more. */
void ct_nccl_free_tickets(struct ct_list *list);

/* ---- nccl_stage.c: calls whose buffers are on the host */

/* Whether the call has more than one message. */
bool ct_nccl_is_exchange(const struct ct_call *call);
/* Whether this rank's `in` is read. */
bool ct_nccl_gives(const struct nccl *nccl, const struct ct_call *call);
/* How many bytes of this rank's `out` are written. */
size_t ct_nccl_out_bytes(const struct nccl *nccl, const struct ct_call *call);
bool ct_nccl_is_host_memory(const void *at, size_t bytes);
/* Sets *in to where the device reads the input: the caller's memory, or a copy that the stream
 * makes. After ct_nccl_stage_out(). */
cudaError_t ct_nccl_stage_in(struct nccl *nccl, struct ticket *ticket, const void **in);
/* Sets *out to where the device writes the result; a result for the host is copied at the end. */
cudaError_t ct_nccl_stage_out(struct nccl *nccl, struct ticket *ticket, void **out);
/* Messages are not staged: fails if the device cannot access their memory. */
int ct_nccl_check_messages(const struct ct_call *call, struct ctrun_error *err);

/* ---- nccl_capture.c: calls that become part of a graph */

/* *is_captured: the call will be recorded. Fails if it cannot be recorded. */
int ct_nccl_find_capture(struct nccl *nccl, const struct ct_call *call,
                         cudaStream_t stream, bool *is_captured,
                         struct ctrun_error *err);
int ct_nccl_fail_captured(struct ctrun_error *err);
/* Makes `stream` wait for all that the group's stream has in the capture. Takes the lock. */
int ct_nccl_release_captured(struct nccl *nccl, struct ticket *ticket,
                             void *const *stream, struct ctrun_error *err);

/* ---- nccl_call.c: ct_backend_ops.enqueue and .poll */

int ct_nccl_enqueue(void *self, const struct ct_call *call, void *stream, void **out,
                    struct ctrun_error *err);
int ct_nccl_poll(void *self, void *opaque, bool wait, struct ctrun_error *err);

/* ---- nccl_watch.c: a thread for calls that no caller waits for */

/* ct_backend_ops.release. Starts the thread. */
int ct_nccl_release(void *self, void *opaque, void *const *stream,
                    struct ctrun_error *err);
void ct_nccl_stop_watch(struct nccl *nccl);
