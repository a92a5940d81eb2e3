/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL back end: a plug-in, so that a machine without CUDA never sees it. libnccl and the
 * CUDA runtime are themselves opened at run time, and what is missing is said by name.
 *
 *     caller's stream ──event──> the group's stream: calls in their order ──event each──> the host
 *                                                                          or a caller's stream
 *
 * The communicator is non-blocking: every wait is a poll of an event or of the communicator's
 * state, with a deadline, and ends when the group is aborted. `lock` is held around each NCCL
 * call and not while waiting, so that nobody is inside one when the communicator is aborted.
 * A call whose end no thread of the program waits for is watched by a thread of ours: it may be
 * what cudaStreamSynchronize() waits for.
 *
 * A stream that is being captured takes the group's along, by the event that joins the two: a call is then
 * recorded, and no ticket of it is watched. What runs when the graph is launched, and when, only the caller knows: DDP
 * puts a call of its own behind each launch (ctrun_ddp_replayed()).
 *
 * Device memory is that of the device that is current when the group is opened. Memory of the
 * host goes through a pinned buffer and one of the device. An abort is local: NCCL itself tells
 * the peers, when it can; else their own deadline ends their calls. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/backend/backend.h"
#include "worker_sdk/comm/backend/verdict.h"
#include "worker_sdk/comm/nccl_api.h"
#include "worker_sdk/comm/nccl_kernels.h"

enum {
    OLDEST_NCCL = 21800, /* non-blocking communicators as we use them */
    NAP_MIN_NS = 2000,   /* between polls; doubles up to the maximum */
    NAP_MAX_NS = 1000000,
    STAGE_MIN_BYTES = 4096,
    WATCH_MS = 50, /* between looks at calls that nobody waits for */
    ID_SLICE_MS =
        200, /* between looks whether a rank is lost, while the id is not there */
    REVOKE_MS = 5000, /* for what runs to end, and else a new communicator is made */
    RANKS_PER_ROOT = 128,       /* CTRUN_NCCL_RANKS_PER_ROOT; torch's, too */
    NCCL_MEMORY_MIN = 64 << 10, /* NCCL gives 2 MiB at least */
};

/* Every function that we need, by the library's own name. */
#define NCCL_FUNCTIONS(X)                                                              \
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
#define CUDA_FUNCTIONS(X)                                                              \
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

/* Those that a newer NCCL has: since which version. NULL where it has not. */
#define NEWER_FUNCTIONS(X)                                                             \
    X(ncclCommInitRankScalable, 22300)                                                 \
    X(ncclMemAlloc, 21900)                                                             \
    X(ncclMemFree, 21900)                                                              \
    X(ncclCommRegister, 21900)                                                         \
    X(ncclCommDeregister, 21900)                                                       \
    X(ncclCommShrink, 22703)                                                           \
    X(ncclCommRevoke, 22807)

static struct api {
#define MEMBER(name)              __typeof__(name) *name;
#define NEWER_MEMBER(name, since) MEMBER(name)
    NCCL_FUNCTIONS(MEMBER)
    CUDA_FUNCTIONS(MEMBER)
    NEWER_FUNCTIONS(NEWER_MEMBER)
#undef NEWER_MEMBER
#undef MEMBER
} api;

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
    bool is_released; /* its caller does not ask any more */
    bool is_done;
    /* What lies on the host goes through these, `room` bytes each; kept for the next call. */
    void *pinned;
    void *device;
    size_t room;
    size_t fetched; /* bytes that are copied from `pinned` to call.out in the end */
};

struct nccl {
    ncclComm_t comm; /* NULL once aborted */
    bool is_kept;    /* it may be followed by a smaller one, which is made of it */
    bool is_stopped; /* by its end: comm is for ncclCommShrink() alone */
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
    pthread_cond_t released; /* a call has nobody who waits for it */
    bool is_closing;
    bool has_thread;
    pthread_t thread;
};

/* ---- The libraries ---------------------------------------------------------------------- */

static int find_function(void **out, void *library, const char *name,
                         struct ctrun_error *err)
{
    *out = dlsym(library, name);
    return *out ? 0 : ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: %s is missing", name);
}

static int open_library(void **out, const char *const *names, struct ctrun_error *err)
{
    for (int i = 0; names[i]; i++)
        if ((*out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)))
            return 0;
    return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: %s", dlerror());
}

static int find_all(struct api *out, struct ctrun_error *err)
{
    const char *chosen = getenv("CTRUN_NCCL_LIBRARY");
    const char *const nccl_names[] = {chosen ? chosen : "libnccl.so.2", NULL};
    static const char *const cuda_names[] = {"libcudart.so.13", "libcudart.so.12",
                                             "libcudart.so", NULL};
    void *nccl, *cuda;
    void *found;
    int version = 0;
    int rc;

    if ((rc = open_library(&nccl, nccl_names, err)) < 0 ||
        (rc = open_library(&cuda, cuda_names, err)) < 0)
        return rc;
#define FIND(name, library)                                                            \
    if ((rc = find_function(&found, library, #name, err)) < 0)                         \
        return rc;                                                                     \
    memcpy(&out->name, &found, sizeof found);
#define FIND_NCCL(name) FIND(name, nccl)
#define FIND_CUDA(name) FIND(name, cuda)
    NCCL_FUNCTIONS(FIND_NCCL)
    CUDA_FUNCTIONS(FIND_CUDA)
    if (out->ncclGetVersion(&version) != ncclSuccess || version < OLDEST_NCCL)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: the library has version %d; needed is %d or newer",
                       version, OLDEST_NCCL);
#define FIND_NEWER(name, since)                                                        \
    found = version >= (since) ? dlsym(nccl, #name) : NULL;                            \
    memcpy(&out->name, &found, sizeof found);
    NEWER_FUNCTIONS(FIND_NEWER)
    return 0; /* the libraries stay open as long as the process lives */
}

/* Written once: threads of other groups read it. (Tests change the library, while there is no group.) */
static int load(struct ctrun_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct api found;
    int rc = find_all(&found, err);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&lock);
    if (memcmp(&api, &found, sizeof api) != 0)
        api = found;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int cuda_fail(struct ctrun_error *err, const char *what, cudaError_t code)
{
    return ct_fail(err, code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
                   "cuda: %s: %s", what, api.cudaGetErrorString(code));
}

static int nccl_fail(struct ctrun_error *err, const char *what, ncclResult_t code)
{
    int rc = code == ncclRemoteError ? CTRUN_E_PEER_LOST
             : code == ncclInvalidArgument || code == ncclInvalidUsage ? -EINVAL
                                                                       : -EIO;

    return ct_fail(err, rc, "nccl: %s: %s", what, api.ncclGetErrorString(code));
}

/* ---- Waiting ---------------------------------------------------------------------------- */

static void nap(long *ns)
{
    struct timespec time = {.tv_nsec = *ns};

    (void)nanosleep(&time, NULL); /* shorter is fine */
    *ns = *ns * 2 < NAP_MAX_NS ? *ns * 2 : NAP_MAX_NS;
}

/* 1 when the communicator is idle, 0 while it works on the last call. Lock held. */
static int ask_comm(struct nccl *nccl, const char *what, struct ctrun_error *err)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked;
    int rc = ct_verdict_get(&nccl->verdict, err);

    if (rc == 0)
        rc = ct_loss_check(&nccl->losses, err);
    if (rc < 0)
        return rc;
    if (!nccl->comm)
        return ct_fail(err, CTRUN_E_ABORTED, "nccl: %s: the group was aborted", what);
    if ((asked = api.ncclCommGetAsyncError(nccl->comm, &state)) != ncclSuccess)
        return nccl_fail(err, what, asked);
    if (state == ncclInProgress)
        return 0;
    return state == ncclSuccess ? 1 : nccl_fail(err, what, state);
}

static int settle(struct nccl *nccl, const char *what, uint64_t deadline_ms,
                  struct ctrun_error *err)
{
    long nap_ns = NAP_MIN_NS;
    int rc;

    for (;;) {
        pthread_mutex_lock(&nccl->lock);
        rc = ask_comm(nccl, what, err);
        pthread_mutex_unlock(&nccl->lock);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (ct_now_ms() >= deadline_ms)
            return ct_fail(err, CTRUN_E_TIMEOUT, "nccl: %s: no answer in time", what);
        nap(&nap_ns);
    }
}

/* 1 when the device is through with the call, 0 not yet. An abort ends the kernel, so that the
 * event of a call that failed fires too: the group is asked in any case, and after the event. Lock
 * held. */
static int ask_device(struct nccl *nccl, struct ticket *ticket, struct ctrun_error *err)
{
    const char *name = ct_call_name(ticket->call.kind);
    cudaError_t state = api.cudaEventQuery(ticket->done);
    int rc;

    if (state != cudaSuccess && state != cudaErrorNotReady)
        return cuda_fail(err, name, state);
    if ((rc = ask_comm(nccl, name, err)) < 0)
        return rc;
    ticket->is_done = state == cudaSuccess;
    return ticket->is_done;
}

static int fail_late(const struct ticket *ticket, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];

    ct_call_format(text, &ticket->call);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "nccl: %s: not done in time; a rank is missing or stuck", text);
}

/* ---- Opening and closing ---------------------------------------------------------------- */

/* Lock held. */
static bool is_idle(struct nccl *nccl)
{
    const bool is_empty = ct_list_is_empty(&nccl->running);
    const struct ticket *last = is_empty ? NULL
                                         : ct_list_entry(nccl->running.prev,
                                                         struct ticket, node);

    return !nccl->has_recorded &&
           (is_empty ||
            (last->is_placed && api.cudaEventQuery(last->done) == cudaSuccess));
}

/* Ends what runs on the communicator, so that ncclCommShrink() can follow. False: it is to be aborted. Lock held. */
static bool stop_comm(struct nccl *nccl)
{
    ncclResult_t begun;

    if (!nccl->is_kept || !api.ncclCommShrink)
        return false;
    if (!api.ncclCommRevoke) /* kernels would spin until then: the program may wait */
        return is_idle(nccl);
    begun = api.ncclCommRevoke(nccl->comm, NCCL_REVOKE_DEFAULT);
    return begun == ncclSuccess || begun == ncclInProgress;
}

static void nccl_abort(void *self, int code, const char *text)
{
    struct nccl *nccl = self;

    (void)ct_verdict_set(&nccl->verdict, code, text); /* the first reason stays */
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm && !nccl->is_stopped && !(nccl->is_stopped = stop_comm(nccl))) {
        (void)api.ncclCommAbort(nccl->comm); /* nothing is left to do if it fails */
        nccl->comm = NULL;
    }
    pthread_mutex_unlock(&nccl->lock);
}

static void free_block(struct nccl *nccl, struct block *block);

/* Of a communicator that was stopped: nothing can be made of it any more. */
static void end_stopped(struct nccl *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm && nccl->is_stopped) {
        (void)api.ncclCommAbort(nccl->comm);
        nccl->comm = NULL;
    }
    pthread_mutex_unlock(&nccl->lock);
    for (struct block **link = &nccl->blocks; *link;) {
        struct block *block = *link;

        if (block->is_given_back) {
            *link = block->next;
            free_block(nccl, block);
        } else {
            link = &block->next;
        }
    }
}

static void free_tickets(struct ct_list *list)
{
    while (!ct_list_is_empty(list)) {
        struct ticket *ticket = ct_list_entry(list->next, struct ticket, node);

        ct_list_remove(&ticket->node);
        if (ticket->done)
            (void)api.cudaEventDestroy(ticket->done);
        if (ticket->pinned)
            (void)api.cudaFreeHost(ticket->pinned);
        if (ticket->device)
            (void)api.cudaFree(ticket->device);
        free(ticket);
    }
}

/* Waits until the device is through with all calls, so that their memory may go. */
static void finish_running(struct nccl *nccl)
{
    struct ctrun_error why;
    long nap_ns = NAP_MIN_NS;
    int rc = 0;

    while (rc == 0) {
        pthread_mutex_lock(&nccl->lock); /* the thread takes tickets out */
        if (ct_list_is_empty(&nccl->running)) {
            rc = 1;
        } else {
            struct ticket *last = ct_list_entry(nccl->running.prev, struct ticket,
                                                node);

            rc = ask_device(nccl, last, &why);
            if (rc == 0 && ct_now_ms() >= last->call.deadline_ms)
                rc = fail_late(last, &why);
        }
        pthread_mutex_unlock(&nccl->lock);
        if (rc == 0)
            nap(&nap_ns);
    }
    if (rc < 0)
        nccl_abort(nccl, rc, why.text);
}

static void stop_thread(struct nccl *nccl)
{
    if (!nccl->has_thread)
        return;
    pthread_mutex_lock(&nccl->lock);
    nccl->is_closing = true;
    pthread_cond_signal(&nccl->released);
    pthread_mutex_unlock(&nccl->lock);
    (void)pthread_join(nccl->thread, NULL);
}

static int nccl_free(void *self, void *at);

static void nccl_close(void *self)
{
    enum {
        FINALIZE_MS = 5000
    };
    struct nccl *nccl = self;
    ncclResult_t begun;

    stop_thread(nccl);
    finish_running(nccl);
    end_stopped(nccl);
    while (nccl->blocks) /* NCCL gives back what was registered before it ends */
        (void)nccl_free(nccl, nccl->blocks->data);
    begun = nccl->comm ? api.ncclCommFinalize(nccl->comm) : ncclSuccess;

    if (nccl->comm && (begun == ncclSuccess || begun == ncclInProgress) &&
        settle(nccl, "close", ct_deadline_ms(FINALIZE_MS), NULL) == 0)
        (void)api.ncclCommDestroy(nccl->comm);
    else if (nccl->comm)
        (void)api.ncclCommAbort(nccl->comm);
    free_tickets(&nccl->running);
    free_tickets(&nccl->recorded);
    free_tickets(&nccl->spare);
    if (nccl->scratch)
        (void)api.cudaFree(nccl->scratch);
    ct_nccl_kernels_unload(&nccl->kernels);
    if (nccl->joined)
        (void)api.cudaEventDestroy(nccl->joined);
    if (nccl->stream)
        (void)api.cudaStreamDestroy(nccl->stream);
    pthread_cond_destroy(&nccl->released);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl);
}

/* Waits until it is there, or a rank of the world is lost: member 0 may have died before it made one. */
static int get_id(const struct ct_backend_setup *setup, const char *key, void **value,
                  size_t *length, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    int rc;

    for (;;) {
        uint64_t slice_ms = ct_deadline_ms(ID_SLICE_MS);

        if (slice_ms > setup->deadline_ms || !setup->losses.check)
            slice_ms = setup->deadline_ms;
        rc = store->get(store->context, key, value, length, slice_ms, err);
        if (rc != CTRUN_E_TIMEOUT || slice_ms == setup->deadline_ms)
            return rc;
        if ((rc = ct_loss_check(&setup->losses, err)) < 0)
            return rc;
    }
}

/* One member of so many makes an id, so that not all meet at one. All ranks have the same NCCL and, as the
 * manual says, the same environment. */
static int count_roots(int size)
{
    const char *given = getenv("CTRUN_NCCL_RANKS_PER_ROOT");
    const long ranks = given ? strtol(given, NULL, 10) : RANKS_PER_ROOT;

    if (!api.ncclCommInitRankScalable || ranks < 1 || ranks >= size)
        return 1;
    return (int)((size + ranks - 1) / ranks);
}

/* Roots are `size / count` members apart, the first is member 0. They make the ids, the store carries them. */
static int share_id(ncclUniqueId *id, int i, int count,
                    const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    const int root = (int)((long)i * setup->size / count);
    char key[CT_BOOTSTRAP_KEY_MAX];
    ncclResult_t made;
    size_t length;
    void *value;
    int rc;

    (void)ct_format(key, sizeof key, "%s/nccl/%d", setup->key, i);
    if (setup->me == root) {
        if ((made = api.ncclGetUniqueId(id)) != ncclSuccess)
            return nccl_fail(err, "unique id", made);
        return setup->size == 1 ? 0
                                : store->set(store->context, key, id, sizeof *id,
                                             setup->deadline_ms, err);
    }
    rc = get_id(setup, key, &value, &length, err);
    if (rc < 0)
        return ct_wrap(err, "nccl: the id of rank %d", setup->ranks[root]);
    if (length == sizeof *id)
        memcpy(id, value, sizeof *id);
    else
        rc = ct_fail(err, CTRUN_E_PROTOCOL, "nccl: an id of %zu bytes", length);
    free(value);
    return rc;
}

/* Our own id first: others wait for it while we wait for theirs. */
static int share_ids(ncclUniqueId *ids, int count, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    int rc = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; rc == 0 && i < count; i++)
            if ((setup->me == (int)((long)i * setup->size / count)) == (pass == 0))
                rc = share_id(&ids[i], i, count, setup, err);
    return rc;
}

static int make_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const int count = count_roots(setup->size);
    ncclUniqueId *ids = ct_zalloc_array((size_t)count, sizeof *ids);
    ncclResult_t begun = ncclSuccess;
    int rc = ids ? share_ids(ids, count, setup, err)
                 : ct_fail(err, -ENOMEM, "nccl: no memory");

    config.blocking = 0;
    if (rc == 0 && count == 1)
        begun = api.ncclCommInitRankConfig(&nccl->comm, setup->size, ids[0], setup->me,
                                           &config);
    else if (rc == 0)
        begun = api.ncclCommInitRankScalable(&nccl->comm, setup->size, setup->me, count,
                                             ids, &config);
    free(ids);
    if (rc == 0 && begun != ncclSuccess && begun != ncclInProgress)
        rc = nccl_fail(err, "open", begun);
    return rc < 0 ? rc : settle(nccl, "open", setup->deadline_ms, err);
}

/* ---- What is left of a communicator ----------------------------------------------------- */

/* Whether the old one can be made smaller. Waits until what ran on it has ended. */
static bool may_shrink(struct nccl *nccl, const struct ct_backend_setup *setup)
{
    struct nccl *old = setup->old;
    const uint64_t until_ms = ct_deadline_ms(REVOKE_MS);
    long nap_ns = NAP_MIN_NS;

    if (old->device != nccl->device || setup->size >= setup->old_size)
        return false;
    for (;;) {
        ncclResult_t state = ncclSystemError;

        pthread_mutex_lock(&old->lock);
        if (old->comm && old->is_stopped &&
            api.ncclCommGetAsyncError(old->comm, &state) != ncclSuccess)
            state = ncclSystemError;
        pthread_mutex_unlock(&old->lock);
        if (state != ncclInProgress)
            return state == ncclSuccess;
        if (ct_now_ms() >= until_ms)
            return false;
        nap(&nap_ns);
    }
}

/* What member i says, as our key `what` has it. */
static int get_word(const struct ct_backend_setup *setup, const char *what, int i,
                    char text[CT_BOOTSTRAP_KEY_MAX], struct ctrun_error *err)
{
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    void *value;
    int rc;

    (void)ct_format(key, sizeof key, "%s/%s/%d", setup->key, what, i);
    if ((rc = get_id(setup, key, &value, &length, err)) < 0)
        return ct_wrap(err, "nccl: the word of rank %d", setup->ranks[i]);
    if (length < CT_BOOTSTRAP_KEY_MAX)
        memcpy(text, value, length);
    text[length < CT_BOOTSTRAP_KEY_MAX ? length : 0] = '\0';
    free(value);
    return 0;
}

static int put_word(const struct ct_backend_setup *setup, const char *what,
                    const char *text, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    char key[CT_BOOTSTRAP_KEY_MAX];

    (void)ct_format(key, sizeof key, "%s/%s/%d", setup->key, what, setup->me);
    return store->set(store->context, key, text, strlen(text), setup->deadline_ms, err);
}

/* The old one is made smaller if all have it still, and it is the same one; else all make a new one. */
static int agree(bool *shrinks, const struct ct_backend_setup *setup, bool is_able,
                 struct ctrun_error *err)
{
    const char *own = is_able ? setup->old_key : "none";
    char text[CT_BOOTSTRAP_KEY_MAX];
    int rc = 0;

    *shrinks = is_able;
    if (setup->size == 1)
        return 0;
    if (setup->me > 0) {
        if ((rc = put_word(setup, "old", own, err)) == 0 &&
            (rc = get_word(setup, "way", 0, text, err)) == 0)
            *shrinks = strcmp(text, "shrink") == 0;
        return rc;
    }
    for (int i = 1; rc == 0 && i < setup->size; i++) {
        rc = get_word(setup, "old", i, text, err);
        *shrinks = *shrinks && rc == 0 && strcmp(text, own) == 0;
    }
    return rc < 0 ? rc : put_word(setup, "way", *shrinks ? "shrink" : "new", err);
}

/* Members of the old one that are none of ours, as they are numbered there. */
static int list_excluded(int *excluded, const struct ct_backend_setup *setup)
{
    int count = 0;

    for (int i = 0, at = 0; i < setup->old_size; i++)
        if (at < setup->size && setup->ranks[at] == setup->old_ranks[i])
            at++;
        else
            excluded[count++] = i;
    return count;
}

/* Until the new one is there. 1: it is; 0: not yet. */
static int ask_shrunk(struct nccl *nccl, struct nccl *old, struct ctrun_error *err)
{
    ncclResult_t state = ncclSystemError;
    int rc;

    if ((rc = ct_loss_check(&nccl->losses, err)) < 0)
        return rc;
    pthread_mutex_lock(&old->lock);
    if (api.ncclCommGetAsyncError(old->comm, &state) != ncclSuccess)
        state = ncclSystemError;
    pthread_mutex_unlock(&old->lock);
    if (state == ncclInProgress)
        return 0;
    return state == ncclSuccess && nccl->comm ? 1 : nccl_fail(err, "shrink", state);
}

static int shrink_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                       struct ctrun_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct nccl *old = setup->old;
    int *excluded = ct_zalloc_array((size_t)setup->old_size, sizeof *excluded);
    long nap_ns = NAP_MIN_NS;
    ncclResult_t begun;
    int rc = 0;

    if (!excluded)
        return ct_fail(err, -ENOMEM, "nccl: no memory");
    config.blocking = 0;
    pthread_mutex_lock(&old->lock);
    begun = api.ncclCommShrink(old->comm, excluded, list_excluded(excluded, setup),
                               &nccl->comm, &config, NCCL_SHRINK_ABORT);
    pthread_mutex_unlock(&old->lock);
    if (begun != ncclSuccess && begun != ncclInProgress)
        rc = nccl_fail(err, "shrink", begun);
    while (rc == 0 && (rc = ask_shrunk(nccl, old, err)) == 0) {
        if (ct_now_ms() >= setup->deadline_ms)
            rc = ct_fail(err, CTRUN_E_TIMEOUT, "nccl: shrink: no answer in time");
        nap(&nap_ns);
    }
    free(excluded);
    return rc < 0 ? rc : settle(nccl, "shrink", setup->deadline_ms, err);
}

/* In the end the old communicator is gone; it is kept while it is not known what the others can do. */
static int init_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    bool shrinks = false;
    int rc;

    if (setup->old && api.ncclCommShrink &&
        (rc = agree(&shrinks, setup, may_shrink(nccl, setup), err)) < 0)
        return rc;
    rc = shrinks ? shrink_comm(nccl, setup, err) : 0;
    if (setup->old)
        end_stopped(setup->old);
    return shrinks ? rc : make_comm(nccl, setup, err);
}

static int open_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    cudaError_t made;

    if ((made = api.cudaGetDevice(&nccl->device)) != cudaSuccess ||
        (made = api.cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking)) !=
            cudaSuccess ||
        (made = api.cudaEventCreateWithFlags(&nccl->joined, cudaEventDisableTiming)) !=
            cudaSuccess ||
        (made = api.cudaMalloc(&nccl->scratch, sizeof(float))) != cudaSuccess ||
        (made = api.cudaMemset(nccl->scratch, 0, sizeof(float))) != cudaSuccess)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: no usable GPU: %s",
                       api.cudaGetErrorString(made));
    return init_comm(nccl, setup, err);
}

static int nccl_open(void **out, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    struct nccl *nccl;
    int rc = load(err);

    if (rc < 0)
        return rc;
    if (!(nccl = ct_zalloc(sizeof *nccl)))
        return ct_fail(err, -ENOMEM, "nccl: no memory");
    pthread_mutex_init(&nccl->lock, NULL);
    ct_cond_init(&nccl->released);
    ct_list_init(&nccl->running);
    ct_list_init(&nccl->recorded);
    ct_list_init(&nccl->spare);
    nccl->losses = setup->losses;
    nccl->size = setup->size;
    nccl->me = setup->me;
    if ((rc = open_comm(nccl, setup, err)) < 0) {
        nccl_abort(nccl, rc, "opening failed");
        nccl_close(nccl);
        return rc;
    }
    nccl->is_kept = setup->losses.sees_ranks && setup->size > 1;
    *out = nccl;
    return 0;
}

/* ---- Calls ------------------------------------------------------------------------------ */

static const ncclDataType_t dtypes[] = {
    [CTRUN_U8] = ncclUint8,    [CTRUN_I32] = ncclInt32,     [CTRUN_I64] = ncclInt64,
    [CTRUN_F16] = ncclFloat16, [CTRUN_BF16] = ncclBfloat16, [CTRUN_F32] = ncclFloat32,
    [CTRUN_F64] = ncclFloat64, [CTRUN_I8] = ncclInt8};
static const ncclRedOp_t ops[] = {[CTRUN_SUM] = ncclSum,
                                  [CTRUN_AVG] = ncclAvg,
                                  [CTRUN_MIN] = ncclMin,
                                  [CTRUN_MAX] = ncclMax,
                                  [CTRUN_PROD] = ncclProd};

/* All messages at the same time; those to oneself are messages like others. Lock held. */
static ncclResult_t launch_messages(struct nccl *nccl, const struct ct_call *call)
{
    ncclResult_t rc = api.ncclGroupStart();
    ncclResult_t ended;

    if (rc != ncclSuccess)
        return rc;
    for (size_t i = 0; rc == ncclSuccess && i < call->message_count; i++) {
        const struct ct_comm_message *message = &call->messages[i];
        size_t count = message->bytes / ctrun_dtype_size(message->dtype);
        rc = message->is_send
                 ? api.ncclSend(message->from, count, dtypes[message->dtype],
                                message->peer, nccl->comm, nccl->stream)
                 : api.ncclRecv(message->to, count, dtypes[message->dtype],
                                message->peer, nccl->comm, nccl->stream);
    }
    ended = api.ncclGroupEnd();
    return rc == ncclSuccess || rc == ncclInProgress ? ended : rc;
}

/* Puts the call on the group's stream. Lock held. */
static ncclResult_t launch(struct nccl *nccl, const struct ct_call *call,
                           const void *in, void *out)
{
    ncclDataType_t dtype = dtypes[call->dtype];

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE:
        return api.ncclAllReduce(in, out, call->count, dtype, ops[call->op], nccl->comm,
                                 nccl->stream);
    case CT_CALL_REDUCE:
        return api.ncclReduce(in, out, call->count, dtype, ops[call->op], call->peer,
                              nccl->comm, nccl->stream);
    case CT_CALL_REDUCE_SCATTER:
        return api.ncclReduceScatter(in, out, call->count, dtype, ops[call->op],
                                     nccl->comm, nccl->stream);
    case CT_CALL_ALL_TO_ALL:
    case CT_CALL_ALL_TO_ALL_V:
    case CT_CALL_ALL_GATHER_V:
    case CT_CALL_GATHER:
    case CT_CALL_SCATTER:
    case CT_CALL_BATCH: return launch_messages(nccl, call);
    case CT_CALL_BROADCAST:
        return api.ncclBroadcast(in, out, call->count, dtype, call->peer, nccl->comm,
                                 nccl->stream);
    case CT_CALL_ALL_GATHER:
        return api.ncclAllGather(in, out, call->count, dtype, nccl->comm, nccl->stream);
    case CT_CALL_BARRIER:
        return api.ncclAllReduce(nccl->scratch, nccl->scratch, 1, ncclFloat32, ncclSum,
                                 nccl->comm, nccl->stream);
    case CT_CALL_SEND:
        return api.ncclSend(in, call->count, dtype, call->peer, nccl->comm,
                            nccl->stream);
    case CT_CALL_RECV:
        return api.ncclRecv(out, call->count, dtype, call->peer, nccl->comm,
                            nccl->stream);
    case CT_CALL_COPY:
    case CT_CALL_CLEAR:
    case CT_CALL_COMPUTE: break;
    }
    return ncclInvalidArgument;
}

/* What fails kills the group; the first reason is returned. */
static int fail_group(struct nccl *nccl, int rc, const struct ctrun_error *why,
                      struct ctrun_error *err)
{
    nccl_abort(nccl, rc, why->text);
    return ct_verdict_get(&nccl->verdict, err);
}

/* ---- Memory of the host ----------------------------------------------------------------- */

static cudaError_t find_place(const void *data, bool *is_on_device)
{
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered};
    cudaError_t rc = api.cudaPointerGetAttributes(&found, data);

    *is_on_device = found.type == cudaMemoryTypeDevice ||
                    found.type == cudaMemoryTypeManaged;
    return rc;
}

/* More than one message. */
static bool is_exchange(const struct ct_call *call)
{
    return ct_call_has_messages(call) && call->kind != CT_CALL_SEND &&
           call->kind != CT_CALL_RECV;
}

static bool gives(const struct nccl *nccl, const struct ct_call *call)
{
    return call->kind != CT_CALL_RECV && call->kind != CT_CALL_BARRIER &&
           (call->kind != CT_CALL_BROADCAST || call->peer == nccl->me);
}

static size_t out_bytes(const struct nccl *nccl, const struct ct_call *call)
{
    size_t each = call->kind == CT_CALL_ALL_GATHER ? (size_t)nccl->size : 1;
    bool gets = call->kind != CT_CALL_SEND &&
                (call->kind != CT_CALL_REDUCE || call->peer == nccl->me);

    return gets ? call->bytes * each : 0;
}

static cudaError_t reserve(struct ticket *ticket, size_t bytes)
{
    size_t room = STAGE_MIN_BYTES;
    cudaError_t rc;

    if (bytes <= ticket->room)
        return cudaSuccess;
    while (room < bytes) /* seldom more: to free waits for the whole device */
        room *= 2;
    if (ticket->pinned)
        (void)api.cudaFreeHost(ticket->pinned);
    if (ticket->device)
        (void)api.cudaFree(ticket->device);
    ticket->pinned = ticket->device = NULL;
    ticket->room = 0;
    if ((rc = api.cudaHostAlloc(&ticket->pinned, room, cudaHostAllocDefault)) !=
            cudaSuccess ||
        (rc = api.cudaMalloc(&ticket->device, room)) != cudaSuccess)
        return rc;
    ticket->room = room;
    return cudaSuccess;
}

/* Where the device reads `in`: there, or a copy of it that the stream makes. */
static cudaError_t stage_in(struct nccl *nccl, struct ticket *ticket, const void **in)
{
    const struct ct_call *call = &ticket->call;
    const size_t bytes = ct_call_in_bytes(call, nccl->size);
    unsigned char *at;
    bool is_on_device;
    cudaError_t rc;

    if (bytes == 0 || call->kind == CT_CALL_CLEAR || is_exchange(call))
        return cudaSuccess;
    if ((rc = find_place(call->in, &is_on_device)) != cudaSuccess || is_on_device)
        return rc;
    if ((rc = reserve(ticket, bytes)) != cudaSuccess)
        return rc;
    at = ticket->device;
    if (call->kind == CT_CALL_ALL_GATHER && ticket->fetched) /* in place */
        at += (size_t)nccl->me * call->bytes;
    *in = at;
    if (!gives(nccl, call))
        return cudaSuccess;
    memcpy(ticket->pinned, call->in, bytes);
    return api.cudaMemcpyAsync(at, ticket->pinned, bytes, cudaMemcpyHostToDevice,
                               nccl->stream);
}

/* Where the device writes `out`; what lies on the host is fetched in the end. */
static cudaError_t stage_out(struct nccl *nccl, struct ticket *ticket, void **out)
{
    const struct ct_call *call = &ticket->call;
    const size_t bytes = out_bytes(nccl, call);
    const size_t in_bytes = ct_call_in_bytes(call, nccl->size);
    bool is_on_device;
    cudaError_t rc;

    if (bytes == 0 || call->kind == CT_CALL_CLEAR || is_exchange(call))
        return cudaSuccess;
    if ((rc = find_place(call->out, &is_on_device)) != cudaSuccess || is_on_device)
        return rc;
    ticket->fetched = bytes;
    if ((rc = reserve(ticket, bytes > in_bytes ? bytes : in_bytes)) != cudaSuccess)
        return rc;
    *out = ticket->device;
    if (call->kind == CT_CALL_REDUCE_SCATTER) /* in place */
        *out = (unsigned char *)ticket->device + (size_t)nccl->me * call->bytes;
    return cudaSuccess;
}

/* Messages are not staged: the device must reach them. */
static int check_messages(const struct ct_call *call, struct ctrun_error *err)
{
    bool is_on_device = true;
    cudaError_t rc = cudaSuccess;

    for (size_t i = 0; is_exchange(call) && i < call->message_count; i++) {
        const struct ct_comm_message *message = &call->messages[i];
        const void *at = message->is_send ? message->from : message->to;
        if (message->bytes && rc == cudaSuccess && is_on_device)
            rc = find_place(at, &is_on_device);
    }
    if (rc != cudaSuccess)
        return cuda_fail(err, ct_call_name(call->kind), rc);
    return is_on_device ? 0
                        : ct_fail(err, CTRUN_E_UNSUPPORTED,
                                  "nccl: %s: memory of the host: give memory of the "
                                  "device",
                                  ct_call_name(call->kind));
}

/* ---- One call --------------------------------------------------------------------------- */

static cudaError_t run_copy(struct nccl *nccl, struct ticket *ticket, const void *in,
                            void *out)
{
    const struct ct_call *call = &ticket->call;

    if (call->bytes == 0)
        return cudaSuccess;
    if (call->kind == CT_CALL_CLEAR)
        return api.cudaMemsetAsync(out, 0, call->bytes, nccl->stream);
    if (in == out) /* the buffer of the device, between memory of the host */
        return cudaSuccess;
    return api.cudaMemcpyAsync(out, in, call->bytes, cudaMemcpyDeviceToDevice,
                               nccl->stream);
}

/* The group's stream waits for what `stream` has by now. */
static cudaError_t join(struct nccl *nccl, cudaStream_t stream)
{
    cudaError_t rc = api.cudaEventRecord(nccl->joined, stream);

    return rc == cudaSuccess ? api.cudaStreamWaitEvent(nccl->stream, nccl->joined, 0)
                             : rc;
}

/* ---- Captures --------------------------------------------------------------------------- */

static bool is_host_memory(const void *at, size_t bytes)
{
    bool is_on_device = true;

    return bytes && find_place(at, &is_on_device) == cudaSuccess && !is_on_device;
}

/* What a graph cannot have; those of messages check_messages() has refused. */
static int check_captured(struct nccl *nccl, const struct ct_call *call,
                          struct ctrun_error *err)
{
    const char *name = ct_call_name(call->kind);
    const size_t in = ct_call_in_bytes(call, nccl->size);

    if (call->is_awaited)
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "nccl: %s: its stream is being captured, and the host cannot wait "
            "for it: start it with a work, and ctrun_work_wait_on()",
            name);
    if (call->kind == CT_CALL_COMPUTE && !nccl->kernels.module)
        return ct_fail(err, CTRUN_E_USAGE,
                       "nccl: its stream is being captured, and the driver has not "
                       "loaded our kernels: run once what you capture");
    if (call->kind != CT_CALL_CLEAR && !is_exchange(call) &&
        ((gives(nccl, call) && is_host_memory(call->in, in)) ||
         is_host_memory(call->out, out_bytes(nccl, call))))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: %s: its stream is being captured: give memory of the "
                       "device",
                       name);
    return 0;
}

/* Whether the call is to be recorded, and can be. */
static int find_capture(struct nccl *nccl, const struct ct_call *call,
                        cudaStream_t stream, bool *is_captured, struct ctrun_error *err)
{
    enum cudaStreamCaptureStatus of = cudaStreamCaptureStatusNone, own = of;
    const char *name = ct_call_name(call->kind);
    struct ctrun_error why;
    cudaError_t code = api.cudaStreamIsCapturing(stream, &of);

    if (code == cudaSuccess)
        code = api.cudaStreamIsCapturing(nccl->stream, &own);
    if (code != cudaSuccess)
        return fail_group(nccl, cuda_fail(&why, name, code), &why, err);
    if (of == cudaStreamCaptureStatusInvalidated)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "nccl: %s: the capture of its stream is invalid since a call that "
            "CUDA does not permit in one: end it, and begin another",
            name);
    if (of == cudaStreamCaptureStatusNone && own != cudaStreamCaptureStatusNone)
        return ct_fail(err, CTRUN_E_USAGE,
                       "nccl: %s: the group is part of the capture of another stream: "
                       "end that first",
                       name);
    *is_captured = of == cudaStreamCaptureStatusActive;
    return *is_captured ? check_captured(nccl, call, err) : 0;
}

static int fail_captured(struct ctrun_error *err)
{
    return ct_fail(
        err, CTRUN_E_USAGE,
        "nccl: the call is being captured into a graph: a stream can wait for "
        "it, by ctrun_work_wait_on(), and the host cannot");
}

static int put_on_stream(struct nccl *nccl, struct ticket *ticket, cudaStream_t stream,
                         struct ctrun_error *err)
{
    const struct ct_call *call = &ticket->call;
    const char *name = ct_call_name(call->kind);
    const void *in = call->in;
    void *out = call->out;
    ncclResult_t begun = ncclSuccess;
    cudaError_t code;
    int rc;

    if ((code = join(nccl, stream)) != cudaSuccess ||
        (code = stage_out(nccl, ticket, &out)) != cudaSuccess ||
        (code = stage_in(nccl, ticket, &in)) != cudaSuccess)
        return cuda_fail(err, name, code);
    if (call->kind == CT_CALL_COPY || call->kind == CT_CALL_CLEAR) {
        if ((code = run_copy(nccl, ticket, in, out)) != cudaSuccess)
            return cuda_fail(err, name, code);
    } else if (call->kind == CT_CALL_COMPUTE) {
        if ((rc = ct_nccl_kernels_launch(&nccl->kernels, call->kernel, &call->args,
                                         nccl->stream, err)) < 0)
            return rc;
    } else {
        pthread_mutex_lock(&nccl->lock);
        rc = nccl->is_stopped ? ct_verdict_get(&nccl->verdict, err)
                              : ask_comm(nccl, name, err);
        if (rc >= 0)
            begun = launch(nccl, call, in, out);
        pthread_mutex_unlock(&nccl->lock);
        if (rc < 0)
            return rc;
        if (begun != ncclSuccess && begun != ncclInProgress)
            return nccl_fail(err, name, begun);
        if (begun == ncclInProgress &&
            (rc = settle(nccl, name, call->deadline_ms, err)) < 0)
            return rc;
    }
    if ((ticket->fetched &&
         (code = api.cudaMemcpyAsync(ticket->pinned, out, ticket->fetched,
                                     cudaMemcpyDeviceToHost, nccl->stream)) !=
             cudaSuccess) ||
        (!ticket->is_captured &&
         (code = api.cudaEventRecord(ticket->done, nccl->stream)) != cudaSuccess))
        return cuda_fail(err, name, code);
    pthread_mutex_lock(&nccl->lock);
    ticket->is_placed = true;
    pthread_mutex_unlock(&nccl->lock);
    return 0;
}

static struct ticket *take_ticket(struct nccl *nccl, struct ctrun_error *err)
{
    struct ticket *ticket = NULL;
    cudaError_t made;

    pthread_mutex_lock(&nccl->lock);
    if (!ct_list_is_empty(&nccl->spare)) {
        ticket = ct_list_entry(nccl->spare.next, struct ticket, node);
        ct_list_remove(&ticket->node);
    }
    pthread_mutex_unlock(&nccl->lock);
    if (ticket)
        return ticket;
    if (!(ticket = ct_zalloc(sizeof *ticket))) {
        ct_fail(err, -ENOMEM, "nccl: no memory");
        return NULL;
    }
    made = api.cudaEventCreateWithFlags(&ticket->done, cudaEventDisableTiming);
    if (made == cudaSuccess)
        return ticket;
    (void)cuda_fail(err, "event", made);
    free(ticket);
    return NULL;
}

/* To `spare`. Lock held. */
static void spend(struct nccl *nccl, struct ticket *ticket)
{
    ct_list_remove(&ticket->node);
    ct_list_add(&nccl->spare, &ticket->node);
}

/* The stream comes behind all that the group's own has in the capture. */
static int release_captured(struct nccl *nccl, struct ticket *ticket,
                            void *const *stream, struct ctrun_error *err)
{
    cudaError_t code = cudaSuccess;

    pthread_mutex_lock(&nccl->lock);
    spend(nccl, ticket);
    pthread_mutex_unlock(&nccl->lock);
    if (stream &&
        ((code = api.cudaEventRecord(nccl->joined, nccl->stream)) != cudaSuccess ||
         (code = api.cudaStreamWaitEvent(*stream, nccl->joined, 0)) != cudaSuccess))
        return cuda_fail(err, "stream wait", code);
    return 0;
}

static int nccl_enqueue(void *self, const struct ct_call *call, void *stream,
                        void **out, struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    struct ticket *ticket;
    bool is_captured;
    int rc = ct_verdict_get(&nccl->verdict, err);

    if (rc < 0)
        return rc;
    (void)api.cudaSetDevice(nccl->device); /* of this thread; a failure shows below */
    if ((rc = check_messages(call, err)) < 0 ||
        (rc = find_capture(nccl, call, stream, &is_captured, err)) < 0)
        return rc;
    if (!(ticket = take_ticket(nccl, &why)))
        return fail_group(nccl, why.code, &why, err);
    ticket->call = *call;
    ticket->is_placed = ticket->is_released = ticket->is_done = false;
    ticket->is_captured = is_captured;
    ticket->fetched = 0;
    pthread_mutex_lock(&nccl->lock); /* before it runs: its buffers are in use then */
    ct_list_add(is_captured ? &nccl->recorded : &nccl->running, &ticket->node);
    nccl->has_recorded = nccl->has_recorded || is_captured;
    pthread_mutex_unlock(&nccl->lock);
    rc = put_on_stream(nccl, ticket, stream, &why);
    if (rc < 0 && is_captured) { /* nothing has run */
        (void)release_captured(nccl, ticket, NULL, NULL);
        return ct_fail(err, rc, "%s", why.text);
    }
    if (rc < 0)
        return fail_group(nccl, rc, &why, err);
    *out = ticket;
    return 0;
}

static int wait_for_device(struct nccl *nccl, struct ticket *ticket, bool wait,
                           struct ctrun_error *err)
{
    long nap_ns = NAP_MIN_NS;
    int rc;

    for (;;) {
        pthread_mutex_lock(&nccl->lock);
        rc = ask_device(nccl, ticket, err);
        pthread_mutex_unlock(&nccl->lock);
        if (rc != 0 || !wait)
            return rc;
        if (ct_now_ms() >= ticket->call.deadline_ms)
            return fail_late(ticket, err);
        nap(&nap_ns);
    }
}

static int nccl_poll(void *self, void *opaque, bool wait, struct ctrun_error *err)
{
    struct ticket *ticket = opaque;
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    int rc = ticket->is_captured ? 0 : wait_for_device(nccl, ticket, wait, &why);

    if (ticket->is_captured)
        rc = fail_captured(err);
    else if (rc < 0)
        rc = fail_group(nccl, rc, &why, err);
    else if (rc > 0 && ticket->fetched)
        memcpy(ticket->call.out, ticket->pinned, ticket->fetched);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&nccl->lock);
    if (rc > 0 || ticket->is_captured)
        spend(nccl, ticket); /* else close frees it: the device may still be at it */
    pthread_mutex_unlock(&nccl->lock);
    return rc;
}

/* ---- Calls that nobody waits for -------------------------------------------------------- */

/* 0, or why the group must end. Lock held. */
static int look_after(struct nccl *nccl, struct ctrun_error *err)
{
    struct ct_list *it, *keep;
    int rc;

    ct_list_for_each_safe(it, keep, &nccl->running) {
        struct ticket *ticket = ct_list_entry(it, struct ticket, node);

        if (!ticket->is_released)
            continue;
        if ((rc = ask_device(nccl, ticket, err)) < 0)
            return rc;
        if (rc > 0)
            spend(nccl, ticket);
        else if (ct_now_ms() >= ticket->call.deadline_ms)
            return fail_late(ticket, err);
        else
            return 0; /* those behind it are not done either */
    }
    return 0;
}

static bool has_released(struct nccl *nccl)
{
    struct ct_list *it;

    ct_list_for_each(it, &nccl->running)
        if (ct_list_entry(it, struct ticket, node)->is_released)
            return true;
    return false;
}

static void *watch(void *context)
{
    struct nccl *nccl = context;
    struct ctrun_error why = {.text = ""};
    /* The queries of this thread are no business of somebody's capture, which they would invalidate. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int rc = 0;

    (void)api.cudaThreadExchangeStreamCaptureMode(&mode);
    (void)api.cudaSetDevice(nccl->device);
    pthread_mutex_lock(&nccl->lock);
    while (rc >= 0 && !nccl->is_closing) {
        if (!has_released(nccl))
            pthread_cond_wait(&nccl->released, &nccl->lock);
        else if ((rc = look_after(nccl, &why)) >= 0 && !nccl->is_closing)
            ct_cond_wait(&nccl->released, &nccl->lock, ct_deadline_ms(WATCH_MS));
    }
    pthread_mutex_unlock(&nccl->lock);
    if (rc < 0)
        nccl_abort(nccl, rc, why.text);
    return NULL;
}

/* The thread takes no signals: they are the program's. */
static int start_watch(struct nccl *nccl, struct ctrun_error *err)
{
    sigset_t all, before;
    int rc;

    if (nccl->has_thread)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&nccl->thread, NULL, watch, nccl);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    nccl->has_thread = rc == 0;
    return rc ? ct_fail(err, -rc, "nccl: start a thread: %s", strerror(rc)) : 0;
}

static int nccl_release(void *self, void *opaque, void *const *stream,
                        struct ctrun_error *err)
{
    struct ticket *ticket = opaque;
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    cudaError_t code;
    int rc = 0;

    if (ticket->is_captured)
        return release_captured(nccl, ticket, stream, err);
    if (ticket->fetched)
        rc = ct_fail(&why, CTRUN_E_UNSUPPORTED,
                     "nccl: a stream cannot wait for memory of the host: use "
                     "ctrun_work_wait()");
    else if (stream &&
             (code = api.cudaStreamWaitEvent(*stream, ticket->done, 0)) != cudaSuccess)
        rc = cuda_fail(&why, "stream wait", code);
    else
        rc = start_watch(nccl, &why);
    pthread_mutex_lock(&nccl->lock);
    ticket->is_released = true;
    pthread_cond_signal(&nccl->released);
    pthread_mutex_unlock(&nccl->lock);
    return rc < 0 ? fail_group(nccl, rc, &why, err) : 0;
}

/* ---- Memory of the group ---------------------------------------------------------------- */

/* Registered, so that NCCL sends from it and receives into it without a copy. What one rank registers all do:
 * they alloc the same. */
static int register_block(struct nccl *nccl, struct block *block, size_t bytes,
                          uint64_t deadline_ms, struct ctrun_error *err)
{
    ncclResult_t begun = ncclSuccess;
    int rc;

    pthread_mutex_lock(&nccl->lock);
    if ((rc = ask_comm(nccl, "register", err)) >= 0)
        begun = api.ncclCommRegister(nccl->comm, block->data, bytes, &block->handle);
    pthread_mutex_unlock(&nccl->lock);
    if (rc < 0)
        return rc;
    if (begun == ncclInProgress)
        return settle(nccl, "register", deadline_ms, err);
    return begun == ncclSuccess ? 0 : nccl_fail(err, "register", begun);
}

/* A communicator that was aborted knows of no memory any more. */
static void free_block(struct nccl *nccl, struct block *block)
{
    pthread_mutex_lock(&nccl->lock);
    if (block->handle && nccl->comm)
        (void)api.ncclCommDeregister(nccl->comm, block->handle);
    pthread_mutex_unlock(&nccl->lock);
    if (block->data && block->is_nccls)
        (void)api.ncclMemFree(block->data);
    else if (block->data)
        (void)api.cudaFree(block->data);
    free(block);
}

static int nccl_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                      struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct block *block = ct_zalloc(sizeof *block);
    ncclResult_t got = ncclSuccess;
    cudaError_t made = cudaSuccess;
    int rc = 0;

    if (!block)
        return ct_fail(err, -ENOMEM, "group alloc: no memory");
    (void)api.cudaSetDevice(nccl->device);
    block->is_nccls = api.ncclMemAlloc && api.ncclMemFree && api.ncclCommRegister &&
                      api.ncclCommDeregister && bytes >= NCCL_MEMORY_MIN;
    if (block->is_nccls)
        got = api.ncclMemAlloc(&block->data, bytes);
    else
        made = api.cudaMalloc(&block->data, bytes);
    if (got != ncclSuccess)
        rc = ct_fail(err, -ENOMEM, "nccl: group alloc: %zu bytes: %s", bytes,
                     api.ncclGetErrorString(got));
    else if (made != cudaSuccess ||
             (made = api.cudaMemset(block->data, 0, bytes)) != cudaSuccess)
        rc = cuda_fail(err, "group alloc", made);
    else if (block->is_nccls)
        rc = register_block(nccl, block, bytes, deadline_ms, err);
    if (rc < 0) {
        free_block(nccl, block);
        return rc;
    }
    block->next = nccl->blocks;
    nccl->blocks = block;
    *out = block->data;
    return 0;
}

/* No call is at it any more, nor a kernel of the caller's. */
static int nccl_free(void *self, void *at)
{
    struct nccl *nccl = self;

    for (struct block **link = &nccl->blocks; *link; link = &(*link)->next) {
        struct block *block = *link;

        if (block->data != at || block->is_given_back)
            continue;
        (void)api.cudaSetDevice(nccl->device);
        finish_running(nccl);
        if (block->handle && nccl->comm && nccl->is_stopped) {
            block->is_given_back = true;
            return 0;
        }
        *link = block->next;
        (void)api
            .cudaDeviceSynchronize(); /* a failure was somebody else's, who is reported */
        free_block(nccl, block);
        return 0;
    }
    return -ENOENT;
}

CTRUN_API ct_plugin_fn ctrun_backend_plugin;

const struct ct_backend_ops *ctrun_backend_plugin(void)
{
    static const struct ct_backend_ops plugin = {.version = CT_BACKEND_VERSION,
                                                 .name = "nccl",
                                                 .open = nccl_open,
                                                 .enqueue = nccl_enqueue,
                                                 .poll = nccl_poll,
                                                 .release = nccl_release,
                                                 .alloc = nccl_alloc,
                                                 .free = nccl_free,
                                                 .abort = nccl_abort,
                                                 .close = nccl_close};

    return &plugin;
}
