/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL back end: a plug-in, so that a machine without CUDA does not need it. libnccl and the
 * CUDA runtime are themselves opened at run time, and the error names what is missing.
 *
 *     caller's stream ──event──> the group's stream: calls in their order ──event each──> the host
 *                                                                          or a caller's stream
 *
 * The group's stream has the highest priority: else a collective would wait until all kernels that
 * the caller has started before have run, and backward would not hide it.
 *
 * The communicator is non-blocking: every wait is a poll of an event or of the communicator's
 * state, with a deadline, and ends when the group is aborted. `lock` is held during each NCCL call
 * and not while waiting, so that no thread is inside NCCL when the communicator is aborted. A call
 * that no thread of the program waits for is watched by a thread of ours, because
 * cudaStreamSynchronize() may wait for it.
 *
 * If the caller's stream is being captured, the event that joins the two streams includes the
 * group's stream in the capture: a call is then recorded, and its ticket is not watched. Only the
 * caller knows when the graph runs: DDP enqueues a call of its own behind each launch
 * (ctrun_ddp_replayed()).
 *
 * The group uses the device that is current when the group is opened. Data in host memory are
 * copied through a pinned buffer and a buffer on the device. NCCL itself may not tell the others
 * that one has failed, so that member leaves a note in the store (nccl_notes.c); nor who is
 * missing, so members whose call is late leave notes, too (nccl_late.c). */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

/* Also closes a half-open group. The thread is stopped first, because it takes tickets out of
 * lists. Then the device must have finished, or the group is aborted: after that nothing uses the
 * memory that is freed. */
static void nccl_close(void *self)
{
    enum {
        FINALIZE_MS = 5000
    };
    struct nccl *nccl = self;
    ncclResult_t begun;

    nccl->is_leaving = true;
    ct_nccl_stop_watch(nccl);
    ct_nccl_finish_running(nccl);
    ct_nccl_end_stopped(nccl);
    while (nccl->blocks) { /* registered memory is freed before the communicator ends */
        (void)ct_nccl_free(nccl, nccl->blocks->data);
        ct_nccl_end_stopped(nccl); /* it may have heard only now that a rank is lost */
    }
    begun = nccl->comm ? ct_nccl_api.ncclCommFinalize(nccl->comm) : ncclSuccess;

    if (nccl->comm && (begun == ncclSuccess || begun == ncclInProgress) &&
        ct_nccl_settle(nccl, "close", ct_deadline_ms(FINALIZE_MS), NULL) == 0)
        (void)ct_nccl_api.ncclCommDestroy(nccl->comm);
    else if (nccl->comm)
        (void)ct_nccl_api.ncclCommAbort(nccl->comm);
    ct_nccl_free_tickets(&nccl->running);
    ct_nccl_free_tickets(&nccl->recorded);
    ct_nccl_free_tickets(&nccl->spare);
    if (nccl->scratch)
        (void)ct_nccl_api.cudaFree(nccl->scratch);
    if (nccl->joined)
        (void)ct_nccl_api.cudaEventDestroy(nccl->joined);
    if (nccl->stream)
        (void)ct_nccl_api.cudaStreamDestroy(nccl->stream);
    free(nccl->ranks);
    pthread_cond_destroy(&nccl->released);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl);
}

static int open_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    const int device = setup->place->device;
    int lowest, highest = 0;
    cudaError_t made;

    if ((device && (made = ct_nccl_api.cudaSetDevice(device - 1)) != cudaSuccess) ||
        (made = ct_nccl_api.cudaGetDevice(&nccl->device)) != cudaSuccess ||
        (made = ct_nccl_api.cudaDeviceGetStreamPriorityRange(&lowest, &highest)) !=
            cudaSuccess ||
        (made = ct_nccl_api.cudaStreamCreateWithPriority(
             &nccl->stream, cudaStreamNonBlocking, highest)) != cudaSuccess ||
        (made = ct_nccl_api.cudaEventCreateWithFlags(
             &nccl->joined, cudaEventDisableTiming)) != cudaSuccess ||
        (made = ct_nccl_api.cudaMalloc(&nccl->scratch, sizeof(float))) != cudaSuccess ||
        (made = ct_nccl_api.cudaMemsetAsync(nccl->scratch, 0, sizeof(float),
                                            nccl->stream)) != cudaSuccess)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: cannot use the GPU: %s",
                       ct_nccl_api.cudaGetErrorString(made));
    /* A failure is told by the first call that needs them. */
    (void)ct_nccl_kernels_get(&nccl->kernels, nccl->device, NULL);
    return setup->parent ? ct_nccl_split(nccl, setup, err)
                         : ct_nccl_init_comm(nccl, setup, err);
}

static int nccl_open(void **out, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    struct ctrun_error why = {.text = ""};
    struct nccl *nccl;
    int rc = ct_nccl_load(err);

    if (rc < 0)
        return rc;
    if (!(nccl = ct_zalloc(sizeof *nccl)))
        return ct_fail(err, -ENOMEM, "nccl: out of memory");
    pthread_mutex_init(&nccl->lock, NULL);
    ct_cond_init(&nccl->released);
    ct_list_init(&nccl->running);
    ct_list_init(&nccl->recorded);
    ct_list_init(&nccl->spare);
    nccl->losses = setup->losses;
    nccl->size = setup->size;
    nccl->me = setup->me;
    nccl->rank = setup->place->rank;
    nccl->is_kept = setup->losses.sees_ranks && setup->size > 1;
    nccl->ranks = ct_zalloc_array((size_t)setup->size, sizeof *nccl->ranks);
    for (int i = 0; nccl->ranks && i < setup->size; i++)
        nccl->ranks[i] = setup->ranks[i];
    rc = nccl->ranks ? open_comm(nccl, setup, &why)
                     : ct_fail(&why, -ENOMEM, "nccl: out of memory");
    if (rc < 0) {
        nccl->is_kept =
            false; /* no smaller communicator is made of one that is half open */
        ct_nccl_abort(nccl, rc, why.text);
        nccl_close(nccl);
        return ct_fail(err, rc, "%s", why.text);
    }
    *out = nccl;
    return 0;
}

CTRUN_API ct_plugin_fn ctrun_backend_plugin;

const struct ct_backend_ops *ctrun_backend_plugin(void)
{
    static const struct ct_backend_ops plugin = {
        .version = CT_BACKEND_VERSION,
        .name = "nccl",
        .open = nccl_open,
        .enqueue = ct_nccl_enqueue,
        .poll = ct_nccl_poll,
        .release = ct_nccl_release,
        .alloc = ct_nccl_alloc,
        .free = ct_nccl_free,
        .can_split = ct_nccl_can_split,
        .set_splitting = ct_nccl_set_splitting,
        .split_none = ct_nccl_split_none,
        .describe_device = ct_nccl_describe_device,
        .find_device = ct_nccl_find_device,
        .abort = ct_nccl_abort,
        .close = nccl_close};

    return &plugin;
}
