/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL back end: a plug-in, so that a machine without CUDA never sees it. libnccl and the
 * CUDA runtime are themselves opened at run time, and what is missing is said by name.
 *
 * The communicator is non-blocking: every wait is a poll of an event or of the communicator's
 * state, with a deadline, and ends when the group is aborted. `lock` is held around each NCCL
 * call and not while waiting, so that nobody is inside one when the communicator is aborted.
 *
 * Data are device memory of the device that is current when the group is opened. Calls go onto
 * the stream of the group's options. An abort is local: NCCL itself tells the peers, when it
 * can; else their own deadline ends their calls. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <time.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/backend.h"
#include "worker_sdk/comm/verdict.h"

enum {
    OLDEST_NCCL = 21800, /* non-blocking communicators as we use them */
    NAP_MIN_NS = 2000,   /* between polls; doubles up to the maximum */
    NAP_MAX_NS = 1000000,
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
    X(ncclBroadcast) X(ncclAllGather) X(ncclSend) X(ncclRecv) X(ncclGetErrorString)
#define CUDA_FUNCTIONS(X)                                                              \
    X(cudaGetDevice)                                                                   \
    X(cudaSetDevice)                                                                   \
    X(cudaEventCreateWithFlags)                                                        \
    X(cudaEventRecord)                                                                 \
    X(cudaEventQuery)                                                                  \
    X(cudaEventDestroy) X(cudaMalloc) X(cudaMemset) X(cudaFree) X(cudaGetErrorString)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    NCCL_FUNCTIONS(MEMBER)
    CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
} api;

struct block {
    struct block *next;
    void *data;
};

struct nccl {
    ncclComm_t comm; /* NULL once aborted */
    cudaStream_t stream;
    cudaEvent_t done;
    int device;
    void *scratch; /* one float, for barriers */
    struct block *blocks;
    struct ct_verdict verdict;
    pthread_mutex_t lock;
    struct ct_call call; /* in the background */
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

static int load(struct ctrun_error *err)
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
    memcpy(&api.name, &found, sizeof found);
#define FIND_NCCL(name) FIND(name, nccl)
#define FIND_CUDA(name) FIND(name, cuda)
    NCCL_FUNCTIONS(FIND_NCCL)
    CUDA_FUNCTIONS(FIND_CUDA)
    if (api.ncclGetVersion(&version) != ncclSuccess || version < OLDEST_NCCL)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: the library has version %d; needed is %d or newer",
                       version, OLDEST_NCCL);
    return 0; /* the libraries stay open as long as the process lives */
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

/* 1 when the device is through with the call, 0 not yet. */
static int ask_device(struct nccl *nccl, const char *what, struct ctrun_error *err)
{
    cudaError_t state = api.cudaEventQuery(nccl->done);
    int rc;

    if (state == cudaSuccess)
        return 1;
    if (state != cudaErrorNotReady)
        return cuda_fail(err, what, state);
    pthread_mutex_lock(&nccl->lock);
    rc = ask_comm(nccl, what, err);
    pthread_mutex_unlock(&nccl->lock);
    return rc < 0 ? rc : 0;
}

/* ---- Opening and closing ---------------------------------------------------------------- */

static void nccl_abort(void *self, int code, const char *text)
{
    struct nccl *nccl = self;

    (void)ct_verdict_set(&nccl->verdict, code, text); /* the first reason stays */
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm)
        (void)api.ncclCommAbort(nccl->comm); /* nothing is left to do if it fails */
    nccl->comm = NULL;
    pthread_mutex_unlock(&nccl->lock);
}

static void nccl_close(void *self)
{
    enum {
        FINALIZE_MS = 5000
    };
    struct nccl *nccl = self;
    ncclResult_t begun = nccl->comm ? api.ncclCommFinalize(nccl->comm) : ncclSuccess;

    if (nccl->comm && (begun == ncclSuccess || begun == ncclInProgress) &&
        settle(nccl, "close", ct_deadline_ms(FINALIZE_MS), NULL) == 0)
        (void)api.ncclCommDestroy(nccl->comm);
    else if (nccl->comm)
        (void)api.ncclCommAbort(nccl->comm);
    while (nccl->blocks) {
        struct block *block = nccl->blocks;
        nccl->blocks = block->next;
        (void)api.cudaFree(block->data);
        free(block);
    }
    if (nccl->scratch)
        (void)api.cudaFree(nccl->scratch);
    if (nccl->done)
        (void)api.cudaEventDestroy(nccl->done);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl);
}

/* Member 0 makes the id, the store carries it. */
static int share_id(ncclUniqueId *id, const struct ct_backend_setup *setup,
                    struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    char key[CT_BOOTSTRAP_KEY_MAX];
    ncclResult_t made;
    size_t length;
    void *value;
    int rc;

    (void)ct_format(key, sizeof key, "%s/nccl", setup->key);
    if (setup->me == 0) {
        if ((made = api.ncclGetUniqueId(id)) != ncclSuccess)
            return nccl_fail(err, "unique id", made);
        return setup->size == 1 ? 0
                                : store->set(store->context, key, id, sizeof *id,
                                             setup->deadline_ms, err);
    }
    rc = store->get(store->context, key, &value, &length, setup->deadline_ms, err);
    if (rc < 0)
        return ct_wrap(err, "nccl: the id of rank %d", setup->ranks[0]);
    if (length == sizeof *id)
        memcpy(id, value, sizeof *id);
    else
        rc = ct_fail(err, CTRUN_E_PROTOCOL, "nccl: an id of %zu bytes", length);
    free(value);
    return rc;
}

static int open_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t begun;
    cudaError_t made;
    int rc;

    if ((made = api.cudaGetDevice(&nccl->device)) != cudaSuccess ||
        (made = api.cudaEventCreateWithFlags(&nccl->done, cudaEventDisableTiming)) !=
            cudaSuccess ||
        (made = api.cudaMalloc(&nccl->scratch, sizeof(float))) != cudaSuccess ||
        (made = api.cudaMemset(nccl->scratch, 0, sizeof(float))) != cudaSuccess)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: no usable GPU: %s",
                       api.cudaGetErrorString(made));
    if ((rc = share_id(&id, setup, err)) < 0)
        return rc;
    config.blocking = 0;
    begun = api.ncclCommInitRankConfig(&nccl->comm, setup->size, id, setup->me,
                                       &config);
    if (begun != ncclSuccess && begun != ncclInProgress)
        return nccl_fail(err, "open", begun);
    return settle(nccl, "open", setup->deadline_ms, err);
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
    nccl->stream = setup->options->stream;
    if ((rc = open_comm(nccl, setup, err)) < 0) {
        nccl_abort(nccl, rc, "opening failed");
        nccl_close(nccl);
        return rc;
    }
    *out = nccl;
    return 0;
}

/* ---- Calls ------------------------------------------------------------------------------ */

static const ncclDataType_t dtypes[] = {
    [CTRUN_U8] = ncclUint8,    [CTRUN_I32] = ncclInt32,     [CTRUN_I64] = ncclInt64,
    [CTRUN_F16] = ncclFloat16, [CTRUN_BF16] = ncclBfloat16, [CTRUN_F32] = ncclFloat32,
    [CTRUN_F64] = ncclFloat64};
static const ncclRedOp_t ops[] = {[CTRUN_SUM] = ncclSum,
                                  [CTRUN_AVG] = ncclAvg,
                                  [CTRUN_MIN] = ncclMin,
                                  [CTRUN_MAX] = ncclMax,
                                  [CTRUN_PROD] = ncclProd};

static ncclResult_t enqueue(struct nccl *nccl, const struct ct_call *call)
{
    ncclDataType_t dtype = dtypes[call->dtype];

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE:
        return api.ncclAllReduce(call->in, call->out, call->count, dtype, ops[call->op],
                                 nccl->comm, nccl->stream);
    case CT_CALL_BROADCAST:
        return api.ncclBroadcast(call->in, call->out, call->count, dtype, call->peer,
                                 nccl->comm, nccl->stream);
    case CT_CALL_ALL_GATHER:
        return api.ncclAllGather(call->in, call->out, call->count, dtype, nccl->comm,
                                 nccl->stream);
    case CT_CALL_BARRIER:
        return api.ncclAllReduce(nccl->scratch, nccl->scratch, 1, ncclFloat32, ncclSum,
                                 nccl->comm, nccl->stream);
    case CT_CALL_SEND:
        return api.ncclSend(call->in, call->count, dtype, call->peer, nccl->comm,
                            nccl->stream);
    case CT_CALL_RECV:
        return api.ncclRecv(call->out, call->count, dtype, call->peer, nccl->comm,
                            nccl->stream);
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

static int nccl_begin(void *self, const struct ct_call *call, struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    ncclResult_t begun = ncclSuccess;
    cudaError_t recorded;
    int rc;

    nccl->call = *call;
    (void)api.cudaSetDevice(nccl->device); /* of this thread; a failure shows below */
    pthread_mutex_lock(&nccl->lock);
    if ((rc = ask_comm(nccl, "call", &why)) >= 0)
        begun = enqueue(nccl, call);
    pthread_mutex_unlock(&nccl->lock);
    if (rc >= 0 && begun != ncclSuccess && begun != ncclInProgress)
        rc = nccl_fail(&why, "call", begun);
    if (rc >= 0)
        rc = settle(nccl, "call", call->deadline_ms, &why);
    if (rc == 0 &&
        (recorded = api.cudaEventRecord(nccl->done, nccl->stream)) != cudaSuccess)
        rc = cuda_fail(&why, "record", recorded);
    return rc < 0 ? fail_group(nccl, rc, &why, err) : 0;
}

static int nccl_advance(void *self, bool wait, struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    long nap_ns = NAP_MIN_NS;
    int rc;

    while ((rc = ask_device(nccl, "call", &why)) == 0 && wait) {
        if (ct_now_ms() >= nccl->call.deadline_ms) {
            rc = ct_fail(&why, CTRUN_E_TIMEOUT,
                         "nccl: call: not done in time; a rank is missing or stuck");
            break;
        }
        nap(&nap_ns);
    }
    return rc < 0 ? fail_group(nccl, rc, &why, err) : rc;
}

static int nccl_run(void *self, const struct ct_call *call, struct ctrun_error *err)
{
    int rc = nccl_begin(self, call, err);

    if (rc == 0)
        rc = nccl_advance(self, true, err);
    return rc < 0 ? rc : 0;
}

static bool nccl_is_inline(const void *self)
{
    (void)self;
    return true; /* the device does the work */
}

static int nccl_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                      struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct block *block = ct_zalloc(sizeof *block);
    cudaError_t made;

    (void)deadline_ms; /* local */
    if (!block)
        return ct_fail(err, -ENOMEM, "group alloc: no memory");
    if ((made = api.cudaMalloc(&block->data, bytes)) != cudaSuccess ||
        (made = api.cudaMemset(block->data, 0, bytes)) != cudaSuccess) {
        if (block->data)
            (void)api.cudaFree(block->data);
        free(block);
        return cuda_fail(err, "group alloc", made);
    }
    block->next = nccl->blocks;
    nccl->blocks = block;
    *out = block->data;
    return 0;
}

CTRUN_API ct_plugin_fn ctrun_backend_plugin;

const struct ct_backend_ops *ctrun_backend_plugin(void)
{
    static const struct ct_backend_ops plugin = {.version = CT_BACKEND_VERSION,
                                                 .name = "nccl",
                                                 .open = nccl_open,
                                                 .run = nccl_run,
                                                 .is_inline = nccl_is_inline,
                                                 .begin = nccl_begin,
                                                 .advance = nccl_advance,
                                                 .alloc = nccl_alloc,
                                                 .abort = nccl_abort,
                                                 .close = nccl_close};

    return &plugin;
}
