/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

static const ncclDataType_t dtypes[] = {
    [CTRUN_U8] = ncclUint8,    [CTRUN_I32] = ncclInt32,     [CTRUN_I64] = ncclInt64,
    [CTRUN_F16] = ncclFloat16, [CTRUN_BF16] = ncclBfloat16, [CTRUN_F32] = ncclFloat32,
    [CTRUN_F64] = ncclFloat64, [CTRUN_I8] = ncclInt8};
static const ncclRedOp_t ops[] = {[CTRUN_SUM] = ncclSum,
                                  [CTRUN_AVG] = ncclAvg,
                                  [CTRUN_MIN] = ncclMin,
                                  [CTRUN_MAX] = ncclMax,
                                  [CTRUN_PROD] = ncclProd};

/* Starts all messages at the same time, those to oneself included. Lock held. */
static ncclResult_t launch_messages(struct nccl *nccl, const struct ct_call *call)
{
    ncclResult_t rc = ct_nccl_api.ncclGroupStart();
    ncclResult_t ended;

    if (rc != ncclSuccess)
        return rc;
    for (size_t i = 0; rc == ncclSuccess && i < call->message_count; i++) {
        const struct ct_comm_message *message = &call->messages[i];
        size_t count = message->bytes / ctrun_dtype_size(message->dtype);
        rc = message->is_send
                 ? ct_nccl_api.ncclSend(message->from, count, dtypes[message->dtype],
                                        message->peer, nccl->comm, nccl->stream)
                 : ct_nccl_api.ncclRecv(message->to, count, dtypes[message->dtype],
                                        message->peer, nccl->comm, nccl->stream);
    }
    ended = ct_nccl_api.ncclGroupEnd();
    return rc == ncclSuccess || rc == ncclInProgress ? ended : rc;
}

/* Puts the call on the group's stream. Lock held. */
static ncclResult_t launch(struct nccl *nccl, const struct ct_call *call,
                           const void *in, void *out)
{
    ncclDataType_t dtype = dtypes[call->dtype];

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE:
        return ct_nccl_api.ncclAllReduce(in, out, call->count, dtype, ops[call->op],
                                         nccl->comm, nccl->stream);
    case CT_CALL_REDUCE:
        return ct_nccl_api.ncclReduce(in, out, call->count, dtype, ops[call->op],
                                      call->peer, nccl->comm, nccl->stream);
    case CT_CALL_REDUCE_SCATTER:
        return ct_nccl_api.ncclReduceScatter(in, out, call->count, dtype, ops[call->op],
                                             nccl->comm, nccl->stream);
    case CT_CALL_ALL_TO_ALL:
    case CT_CALL_ALL_TO_ALL_V:
    case CT_CALL_ALL_GATHER_V:
    case CT_CALL_GATHER:
    case CT_CALL_SCATTER:
    case CT_CALL_BATCH: return launch_messages(nccl, call);
    case CT_CALL_BROADCAST:
        return ct_nccl_api.ncclBroadcast(in, out, call->count, dtype, call->peer,
                                         nccl->comm, nccl->stream);
    case CT_CALL_ALL_GATHER:
    case CT_CALL_SPLIT:
        return ct_nccl_api.ncclAllGather(in, out, call->count, dtype, nccl->comm,
                                         nccl->stream);
    case CT_CALL_BARRIER:
        return ct_nccl_api.ncclAllReduce(nccl->scratch, nccl->scratch, 1, ncclFloat32,
                                         ncclSum, nccl->comm, nccl->stream);
    case CT_CALL_SEND:
        return ct_nccl_api.ncclSend(in, call->count, dtype, call->peer, nccl->comm,
                                    nccl->stream);
    case CT_CALL_RECV:
        return ct_nccl_api.ncclRecv(out, call->count, dtype, call->peer, nccl->comm,
                                    nccl->stream);
    case CT_CALL_COPY:
    case CT_CALL_CLEAR:
    case CT_CALL_COMPUTE:
    case CT_CALL_ALLOC: break;
    }
    return ncclInvalidArgument;
}

static cudaError_t run_copy(struct nccl *nccl, struct ticket *ticket, const void *in,
                            void *out)
{
    const struct ct_call *call = &ticket->call;

    if (call->bytes == 0)
        return cudaSuccess;
    if (call->kind == CT_CALL_CLEAR)
        return ct_nccl_api.cudaMemsetAsync(out, 0, call->bytes, nccl->stream);
    if (in == out) /* same buffer: host to host */
        return cudaSuccess;
    return ct_nccl_api.cudaMemcpyAsync(out, in, call->bytes, cudaMemcpyDeviceToDevice,
                                       nccl->stream);
}

/* Makes the group's stream wait for the work that is on `stream` now. */
static cudaError_t join(struct nccl *nccl, cudaStream_t stream)
{
    cudaError_t rc = ct_nccl_api.cudaEventRecord(nccl->joined, stream);

    return rc == cudaSuccess
               ? ct_nccl_api.cudaStreamWaitEvent(nccl->stream, nccl->joined, 0)
               : rc;
}

/* Enqueues on the group's stream, in this order: the wait for the caller's stream, the copy to the
 * device, the call, the copy to the host, the event. Holds the lock only during NCCL calls. Sets
 * is_placed last: before that `done` is the event of an earlier call, which has fired. */
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
        (code = ct_nccl_stage_out(nccl, ticket, &out)) != cudaSuccess ||
        (code = ct_nccl_stage_in(nccl, ticket, &in)) != cudaSuccess)
        return ct_nccl_cuda_fail(err, name, code);
    if (call->kind == CT_CALL_COPY || call->kind == CT_CALL_CLEAR) {
        if ((code = run_copy(nccl, ticket, in, out)) != cudaSuccess)
            return ct_nccl_cuda_fail(err, name, code);
    } else if (call->kind == CT_CALL_COMPUTE) {
        if ((!nccl->kernels &&
             (rc = ct_nccl_kernels_get(&nccl->kernels, nccl->device, err)) < 0) ||
            (rc = ct_nccl_kernels_launch(nccl->kernels, call->kernel, &call->args,
                                         nccl->stream, err)) < 0)
            return rc;
    } else {
        pthread_mutex_lock(&nccl->lock);
        rc = nccl->is_stopped ? ct_verdict_get(&nccl->verdict, err)
                              : ct_nccl_ask_comm(nccl, name, err);
        if (rc >= 0)
            begun = launch(nccl, call, in, out);
        pthread_mutex_unlock(&nccl->lock);
        if (rc < 0)
            return rc;
        if (begun != ncclSuccess && begun != ncclInProgress)
            return ct_nccl_fail(err, name, begun);
        if (begun == ncclInProgress &&
            (rc = ct_nccl_settle(nccl, name, call->deadline_ms, err)) < 0)
            return rc;
    }
    if ((ticket->fetched &&
         (code = ct_nccl_api.cudaMemcpyAsync(ticket->pinned, out, ticket->fetched,
                                             cudaMemcpyDeviceToHost, nccl->stream)) !=
             cudaSuccess) ||
        (!ticket->is_captured && (code = ct_nccl_api.cudaEventRecord(
                                      ticket->done, nccl->stream)) != cudaSuccess))
        return ct_nccl_cuda_fail(err, name, code);
    pthread_mutex_lock(&nccl->lock);
    ticket->is_placed = true;
    pthread_mutex_unlock(&nccl->lock);
    return 0;
}

int ct_nccl_enqueue(void *self, const struct ct_call *call, void *stream, void **out,
                    struct ctrun_error *err)
{
    struct nccl *nccl = self;
    struct ct_call counted = *call;
    struct ctrun_error why = {.text = ""};
    struct ticket *ticket;
    bool is_captured;
    int rc = ct_verdict_get(&nccl->verdict, err);

    if (rc < 0)
        return ct_wrap(err, CT_FAILED_BEFORE, ct_call_name(call->kind)), rc;
    (void)ct_nccl_api.cudaSetDevice(
        nccl->device); /* for this thread; later calls report a failure */
    if ((rc = ct_nccl_check_messages(call, err)) < 0 ||
        (rc = ct_nccl_find_capture(nccl, call, stream, &is_captured, err)) < 0)
        return rc;
    counted.number = is_captured || call->number == 0 ? 0 : ++nccl->calls;
    if (!is_captured)
        ct_nccl_compare_first(nccl, &counted);
    if (!(ticket = ct_nccl_take_ticket(nccl, &why)))
        return ct_nccl_fail_group(nccl, why.code, &why, err);
    ticket->call = counted;
    ticket->began_ms = ct_now_ms();
    ticket->is_placed = ticket->is_released = ticket->is_done = false;
    ticket->is_captured = is_captured;
    ticket->fetched = 0;
    /* before the call runs: it uses the ticket's buffers */
    pthread_mutex_lock(&nccl->lock);
    ct_list_add(is_captured ? &nccl->recorded : &nccl->running, &ticket->node);
    nccl->has_recorded = nccl->has_recorded || is_captured;
    pthread_mutex_unlock(&nccl->lock);
    rc = put_on_stream(nccl, ticket, stream, &why);
    if (rc < 0 && is_captured) { /* nothing has run */
        (void)ct_nccl_release_captured(nccl, ticket, NULL, NULL);
        return ct_fail(err, rc, "%s", why.text);
    }
    if (rc < 0)
        return ct_nccl_fail_group(nccl, rc, &why, err);
    *out = ticket;
    return 0;
}

/* Holds the lock only for each check, so that the watching thread and an abort can take it in
 * between. */
static int wait_for_device(struct nccl *nccl, struct ticket *ticket, bool wait,
                           struct ctrun_error *err)
{
    struct ct_nccl_wait nap = ct_nccl_wait_begin();
    int rc;

    for (;;) {
        if (!wait)
            ct_nccl_look(nccl, ticket->began_ms);
        pthread_mutex_lock(&nccl->lock);
        rc = ct_nccl_ask_device(nccl, ticket, err);
        pthread_mutex_unlock(&nccl->lock);
        if (rc != 0 || !wait)
            return rc;
        if (ct_now_ms() >= ticket->call.deadline_ms)
            return ct_nccl_fail_late(ticket, err);
        ct_nccl_nap(nccl, &nap);
    }
}

/* The result is copied to the caller's memory here, on the caller's thread: the device writes only
 * to the pinned buffer, at any time. */
int ct_nccl_poll(void *self, void *opaque, bool wait, struct ctrun_error *err)
{
    struct ticket *ticket = opaque;
    struct nccl *nccl = self;
    struct ctrun_error why = {.text = ""};
    int rc = ticket->is_captured ? 0 : wait_for_device(nccl, ticket, wait, &why);

    if (ticket->is_captured)
        rc = ct_nccl_fail_captured(err);
    else if (rc < 0)
        rc = ct_nccl_fail_group(nccl, rc, &why, err);
    else if (rc > 0 && ticket->fetched)
        memcpy(ticket->call.out, ticket->pinned, ticket->fetched);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&nccl->lock);
    if (rc > 0 || ticket->is_captured)
        ct_nccl_spend(nccl,
                      ticket); /* else ct_nccl_free_tickets(): the device may use it */
    pthread_mutex_unlock(&nccl->lock);
    return rc;
}
