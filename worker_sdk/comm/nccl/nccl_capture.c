/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/nccl/nccl_private.h"

/* Refuses calls that a graph cannot contain; ct_nccl_check_messages() has checked messages. */
static int check_captured(struct nccl *nccl, const struct ct_call *call,
                          struct ctrun_error *err)
{
    const char *name = ct_call_name(call->kind);
    const size_t in = ct_call_in_bytes(call, nccl->size);

    if (call->is_awaited)
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "nccl: %s: its stream is being captured, and the host cannot wait "
            "for it: start it with a work, and wait with ctrun_work_wait_on()",
            name);
    if (call->kind != CT_CALL_CLEAR && !ct_nccl_is_exchange(call) &&
        ((ct_nccl_gives(nccl, call) && ct_nccl_is_host_memory(call->in, in)) ||
         ct_nccl_is_host_memory(call->out, ct_nccl_out_bytes(nccl, call))))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: %s: its stream is being captured: give memory of the "
                       "device",
                       name);
    return 0;
}

/* The group's stream joins a capture by waiting for a stream that is captured, and leaves it when
 * the capture ends. In between, a call from a stream outside the capture would be recorded, too, so
 * it is refused. */
int ct_nccl_find_capture(struct nccl *nccl, const struct ct_call *call,
                         cudaStream_t stream, bool *is_captured,
                         struct ctrun_error *err)
{
    enum cudaStreamCaptureStatus of = cudaStreamCaptureStatusNone, own = of;
    const char *name = ct_call_name(call->kind);
    struct ctrun_error why;
    cudaError_t code = ct_nccl_api.cudaStreamIsCapturing(stream, &of);

    if (code == cudaSuccess)
        code = ct_nccl_api.cudaStreamIsCapturing(nccl->stream, &own);
    if (code != cudaSuccess)
        return ct_nccl_fail_group(nccl, ct_nccl_cuda_fail(&why, name, code), &why, err);
    if (of == cudaStreamCaptureStatusInvalidated)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "nccl: %s: the capture of its stream became invalid by a call that CUDA "
            "does not permit in a capture: end this capture, and begin another",
            name);
    if (of == cudaStreamCaptureStatusNone && own != cudaStreamCaptureStatusNone)
        return ct_fail(err, CTRUN_E_USAGE,
                       "nccl: %s: the group is part of the capture of another stream: "
                       "end that first",
                       name);
    *is_captured = of == cudaStreamCaptureStatusActive;
    return *is_captured ? check_captured(nccl, call, err) : 0;
}

int ct_nccl_fail_captured(struct ctrun_error *err)
{
    return ct_fail(
        err, CTRUN_E_USAGE,
        "nccl: the call is being captured into a graph: a stream can wait for "
        "it, by ctrun_work_wait_on(), and the host cannot");
}

int ct_nccl_release_captured(struct nccl *nccl, struct ticket *ticket,
                             void *const *stream, struct ctrun_error *err)
{
    cudaError_t code = cudaSuccess;

    pthread_mutex_lock(&nccl->lock);
    ct_nccl_spend(nccl, ticket);
    pthread_mutex_unlock(&nccl->lock);
    if (stream && ((code = ct_nccl_api.cudaEventRecord(nccl->joined, nccl->stream)) !=
                       cudaSuccess ||
                   (code = ct_nccl_api.cudaStreamWaitEvent(*stream, nccl->joined, 0)) !=
                       cudaSuccess))
        return ct_nccl_cuda_fail(err, "stream wait", code);
    return 0;
}
