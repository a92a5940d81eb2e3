/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

/* Lock held. */
static bool is_idle(struct nccl *nccl)
{
    const bool is_empty = ct_list_is_empty(&nccl->running);
    const struct ticket *last = is_empty ? NULL
                                         : ct_list_entry(nccl->running.prev,
                                                         struct ticket, node);

    return !nccl->has_recorded &&
           (is_empty ||
            (last->is_placed && ct_nccl_api.cudaEventQuery(last->done) == cudaSuccess));
}

/* Ends the running calls of the communicator, so that ncclCommShrink() can follow. False: it must
 * be aborted instead. Lock held. */
static bool stop_comm(struct nccl *nccl)
{
    ncclResult_t begun;

    if (!nccl->is_kept || nccl->is_splitting || !ct_nccl_api.ncclCommShrink)
        return false;
    if (!ct_nccl_api.ncclCommRevoke) /* without it running kernels spin on */
        return is_idle(nccl);
    begun = ct_nccl_api.ncclCommRevoke(nccl->comm, NCCL_REVOKE_DEFAULT);
    return begun == ncclSuccess || begun == ncclInProgress;
}

void ct_nccl_abort(void *self, int code, const char *text)
{
    struct nccl *nccl = self;

    /* First: the end of our calls may be an error of theirs. */
    ct_nccl_publish(nccl, code, text);
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm && !nccl->is_stopped && !(nccl->is_stopped = stop_comm(nccl))) {
        (void)ct_nccl_api.ncclCommAbort(nccl->comm); /* a failure cannot be handled */
        nccl->comm = NULL;
    }
    pthread_mutex_unlock(&nccl->lock);
}

int ct_nccl_fail_group(struct nccl *nccl, int rc, const struct ctrun_error *why,
                       struct ctrun_error *err)
{
    struct ctrun_error told = *why;

    ct_nccl_name_missing(nccl, &told);
    ct_nccl_abort(nccl, rc, told.text);
    return ct_verdict_get(&nccl->verdict, err);
}

void ct_nccl_finish_running(struct nccl *nccl)
{
    struct ctrun_error why;
    struct ct_nccl_wait nap = ct_nccl_wait_begin();
    int rc = 0;

    while (rc == 0) {
        pthread_mutex_lock(&nccl->lock); /* the watching thread changes the list */
        if (ct_list_is_empty(&nccl->running)) {
            rc = 1;
        } else {
            struct ticket *last = ct_list_entry(nccl->running.prev, struct ticket,
                                                node);

            rc = ct_nccl_ask_device(nccl, last, &why);
            if (rc == 0 && ct_now_ms() >= last->call.deadline_ms)
                rc = ct_nccl_fail_late(last, &why);
        }
        pthread_mutex_unlock(&nccl->lock);
        if (rc == 0)
            ct_nccl_nap(nccl, &nap);
    }
    if (rc < 0)
        ct_nccl_abort(nccl, rc, why.text);
}
