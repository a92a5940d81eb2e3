/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    NAP_MIN_NS = 2000,
    NAP_MAX_NS = 1000000
};

struct ct_nccl_wait ct_nccl_wait_begin(void)
{
    return (struct ct_nccl_wait){NAP_MIN_NS, ct_now_ms()};
}

void ct_nccl_nap(struct nccl *nccl, struct ct_nccl_wait *wait)
{
    struct timespec time = {.tv_nsec = wait->nap_ns};

    ct_nccl_look(nccl, wait->since_ms);
    (void)nanosleep(&time, NULL); /* a shorter sleep is fine */
    wait->nap_ns = wait->nap_ns * 2 < NAP_MAX_NS ? wait->nap_ns * 2 : NAP_MAX_NS;
}

/* The communicator is there. */
static int ask_nccl(struct nccl *nccl, const char *what, struct ctrun_error *err)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked;

    if ((asked = ct_nccl_api.ncclCommGetAsyncError(nccl->comm, &state)) != ncclSuccess)
        return ct_nccl_fail(err, what, asked);
    if (state == ncclInProgress)
        return 0;
    return state == ncclSuccess ? 1 : ct_nccl_fail(err, what, state);
}

int ct_nccl_ask_comm(struct nccl *nccl, const char *what, struct ctrun_error *err)
{
    int rc = ct_verdict_get(&nccl->verdict, err);

    if (rc == 0)
        rc = ct_loss_check(&nccl->losses, err);
    if (rc < 0)
        return rc;
    return nccl->comm
               ? ask_nccl(nccl, what, err)
               : ct_fail(err, CTRUN_E_ABORTED, "nccl: %s: the group was aborted", what);
}

int ct_nccl_settle(struct nccl *nccl, const char *what, uint64_t deadline_ms,
                   struct ctrun_error *err)
{
    struct ct_nccl_wait nap = ct_nccl_wait_begin();
    int rc;

    for (;;) {
        pthread_mutex_lock(&nccl->lock);
        rc = ct_nccl_ask_comm(nccl, what, err);
        pthread_mutex_unlock(&nccl->lock);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (ct_now_ms() >= deadline_ms)
            return ct_fail(
                err, CTRUN_E_TIMEOUT,
                "nccl: %s: NCCL did not finish in time; a rank may be missing or stuck",
                what);
        ct_nccl_nap(nccl, &nap);
    }
}

/* An abort ends the kernel, so the event of a failed call fires, too: therefore the communicator is
 * always asked, after the event. What another member has told ends no call that is done: it may be
 * of a later call. */
int ct_nccl_ask_device(struct nccl *nccl, struct ticket *ticket,
                       struct ctrun_error *err)
{
    const char *name = ct_call_name(ticket->call.kind);
    cudaError_t state = ct_nccl_api.cudaEventQuery(ticket->done);
    int rc;

    if (state != cudaSuccess && state != cudaErrorNotReady)
        return ct_nccl_cuda_fail(err, name, state);
    if (state != cudaSuccess || !nccl->comm || nccl->is_stopped)
        rc = ct_nccl_ask_comm(nccl, name, err);
    else if ((rc = ct_loss_check(&nccl->losses, err)) == 0)
        rc = ask_nccl(nccl, name, err);
    if (rc < 0)
        return rc;
    ticket->is_done = state == cudaSuccess;
    return ticket->is_done;
}

int ct_nccl_fail_late(const struct ticket *ticket, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];

    ct_call_format(text, &ticket->call);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "nccl: %s: not done in time; a rank may be missing or stuck", text);
}
