/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/thread.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    WATCH_MS = 50 /* between two checks */
};

/* Checks the running calls: 0, or the code why the group must end. *since_ms: when the first that
 * is not done began. Lock held. */
static int look_after(struct nccl *nccl, uint64_t *since_ms, struct ctrun_error *err)
{
    int rc;

    *since_ms = ct_now_ms();
    ct_list_for_each_safe(struct ticket, ticket, &nccl->running, node) {
        if (!ticket->is_released)
            continue;
        if ((rc = ct_nccl_ask_device(nccl, ticket, err)) < 0)
            return rc;
        if (rc > 0) {
            ct_nccl_spend(nccl, ticket);
            continue;
        }
        if (ct_now_ms() >= ticket->call.deadline_ms)
            return ct_nccl_fail_late(ticket, err);
        *since_ms = ticket->began_ms;
        return 0; /* later calls are not done either */
    }
    return 0;
}

/* Whether a running call is released. Lock held. */
static bool has_released(struct nccl *nccl)
{
    ct_list_for_each(struct ticket, ticket, &nccl->running, node)
        if (ticket->is_released)
            return true;
    return false;
}

/* Sleeps while no call is released. Releases the lock before it asks the store or aborts. */
static void *watch(void *context)
{
    struct nccl *nccl = context;
    struct ctrun_error why = {.text = ""};
    /* Event queries of this thread must not invalidate a capture of another thread. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    uint64_t since_ms;
    int rc = 0;

    (void)ct_nccl_api.cudaThreadExchangeStreamCaptureMode(&mode);
    (void)ct_nccl_api.cudaSetDevice(nccl->device);
    pthread_mutex_lock(&nccl->lock);
    while (rc >= 0 && !nccl->is_closing) {
        if (!has_released(nccl)) {
            pthread_cond_wait(&nccl->released, &nccl->lock);
            continue;
        }
        if ((rc = look_after(nccl, &since_ms, &why)) < 0)
            break;
        pthread_mutex_unlock(&nccl->lock);
        ct_nccl_look(nccl, since_ms);
        pthread_mutex_lock(&nccl->lock);
        if (!nccl->is_closing && ct_verdict_get(&nccl->verdict, NULL) == 0)
            ct_cond_wait(&nccl->released, &nccl->lock, ct_deadline_ms(WATCH_MS));
    }
    pthread_mutex_unlock(&nccl->lock);
    if (rc < 0)
        (void)ct_nccl_fail_group(nccl, rc, &why, NULL);
    return NULL;
}

static int start_watch(struct nccl *nccl, struct ctrun_error *err)
{
    int rc;

    if (nccl->has_thread)
        return 0;
    rc = ct_thread_start(&nccl->thread, watch, nccl);
    nccl->has_thread = rc == 0;
    return rc ? ct_fail(err, rc, "nccl: start a thread: %s", strerror(-rc)) : 0;
}

void ct_nccl_stop_watch(struct nccl *nccl)
{
    if (!nccl->has_thread)
        return;
    pthread_mutex_lock(&nccl->lock);
    nccl->is_closing = true;
    pthread_cond_signal(&nccl->released);
    pthread_mutex_unlock(&nccl->lock);
    (void)pthread_join(nccl->thread, NULL);
}

/* `stream` is made to wait before is_released is set: after that the watching thread may spend the
 * ticket, and the next call records the event again. */
int ct_nccl_release(void *self, void *opaque, void *const *stream,
                    struct ctrun_error *err)
{
    struct ticket *ticket = opaque;
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    cudaError_t code;
    int rc = 0;

    if (ticket->is_captured)
        return ct_nccl_release_captured(nccl, ticket, stream, err);
    if (ticket->fetched)
        rc = ct_fail(
            &why, CTRUN_E_UNSUPPORTED,
            "nccl: a stream cannot wait for a result in memory of the host: use "
            "ctrun_work_wait()");
    else if (stream && (code = ct_nccl_api.cudaStreamWaitEvent(*stream, ticket->done,
                                                               0)) != cudaSuccess)
        rc = ct_nccl_cuda_fail(&why, "stream wait", code);
    else
        rc = start_watch(nccl, &why);
    pthread_mutex_lock(&nccl->lock);
    ticket->is_released = true;
    pthread_cond_signal(&nccl->released);
    pthread_mutex_unlock(&nccl->lock);
    return rc < 0 ? ct_nccl_fail_group(nccl, rc, &why, err) : 0;
}
