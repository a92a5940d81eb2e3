/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    STAGE_MIN_BYTES = 4096
};

/* Memory that CUDA does not know is host memory: then a buffer of the ticket is used instead. */
static cudaError_t find_place(const void *data, bool *is_on_device)
{
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered};
    cudaError_t rc = ct_nccl_api.cudaPointerGetAttributes(&found, data);

    *is_on_device = found.type == cudaMemoryTypeDevice ||
                    found.type == cudaMemoryTypeManaged;
    return rc;
}

bool ct_nccl_is_exchange(const struct ct_call *call)
{
    return ct_call_has_messages(call) && call->kind != CT_CALL_SEND &&
           call->kind != CT_CALL_RECV;
}

bool ct_nccl_gives(const struct nccl *nccl, const struct ct_call *call)
{
    return call->kind != CT_CALL_RECV && call->kind != CT_CALL_BARRIER &&
           (call->kind != CT_CALL_BROADCAST || call->peer == nccl->me);
}

size_t ct_nccl_out_bytes(const struct nccl *nccl, const struct ct_call *call)
{
    size_t each = ct_call_is_all_gather(call) ? (size_t)nccl->size : 1;
    bool gets = call->kind != CT_CALL_SEND &&
                (call->kind != CT_CALL_REDUCE || call->peer == nccl->me);

    return gets ? call->bytes * each : 0;
}

/* Called before the call is on the stream: no call uses the buffers that are replaced here. */
static cudaError_t reserve(struct ticket *ticket, size_t bytes)
{
    size_t room = STAGE_MIN_BYTES;
    cudaError_t rc;

    if (bytes <= ticket->room)
        return cudaSuccess;
    /* grows seldom, because cudaFree() waits for the whole device */
    while (room < bytes)
        room *= 2;
    if (ticket->pinned)
        (void)ct_nccl_api.cudaFreeHost(ticket->pinned);
    if (ticket->device)
        (void)ct_nccl_api.cudaFree(ticket->device);
    ticket->pinned = ticket->device = NULL;
    ticket->room = 0;
    if ((rc = ct_nccl_api.cudaHostAlloc(&ticket->pinned, room, cudaHostAllocDefault)) !=
            cudaSuccess ||
        (rc = ct_nccl_api.cudaMalloc(&ticket->device, room)) != cudaSuccess)
        return rc;
    ticket->room = room;
    return cudaSuccess;
}

/* The caller's bytes are read here, not when the stream reaches the copy: the caller may change
 * them after the call. After stage_out(), because `fetched` tells whether the result comes into the
 * same buffer. */
cudaError_t ct_nccl_stage_in(struct nccl *nccl, struct ticket *ticket, const void **in)
{
    const struct ct_call *call = &ticket->call;
    const size_t bytes = ct_call_in_bytes(call, nccl->size);
    unsigned char *at;
    bool is_on_device;
    cudaError_t rc;

    if (bytes == 0 || call->kind == CT_CALL_CLEAR || ct_nccl_is_exchange(call))
        return cudaSuccess;
    if ((rc = find_place(call->in, &is_on_device)) != cudaSuccess || is_on_device)
        return rc;
    if ((rc = reserve(ticket, bytes)) != cudaSuccess)
        return rc;
    at = ticket->device;
    if (ct_call_is_all_gather(call) && ticket->fetched) /* in place */
        at += (size_t)nccl->me * call->bytes;
    *in = at;
    if (!ct_nccl_gives(nccl, call))
        return cudaSuccess;
    memcpy(ticket->pinned, call->in, bytes);
    return ct_nccl_api.cudaMemcpyAsync(at, ticket->pinned, bytes,
                                       cudaMemcpyHostToDevice, nccl->stream);
}

/* Before stage_in(), with room for input and result: *out points into the buffer, which must not be
 * replaced afterwards. */
cudaError_t ct_nccl_stage_out(struct nccl *nccl, struct ticket *ticket, void **out)
{
    const struct ct_call *call = &ticket->call;
    const size_t bytes = ct_nccl_out_bytes(nccl, call);
    const size_t in_bytes = ct_call_in_bytes(call, nccl->size);
    bool is_on_device;
    cudaError_t rc;

    if (bytes == 0 || call->kind == CT_CALL_CLEAR || ct_nccl_is_exchange(call))
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

int ct_nccl_check_messages(const struct ct_call *call, struct ctrun_error *err)
{
    bool is_on_device = true;
    cudaError_t rc = cudaSuccess;

    for (size_t i = 0; ct_nccl_is_exchange(call) && i < call->message_count; i++) {
        const struct ct_comm_message *message = &call->messages[i];
        const void *at = message->is_send ? message->from : message->to;
        if (message->bytes && rc == cudaSuccess && is_on_device)
            rc = find_place(at, &is_on_device);
    }
    if (rc != cudaSuccess)
        return ct_nccl_cuda_fail(err, ct_call_name(call->kind), rc);
    return is_on_device ? 0
                        : ct_fail(err, CTRUN_E_UNSUPPORTED,
                                  "nccl: %s: the data are in memory of the host: give "
                                  "memory of the device",
                                  ct_call_name(call->kind));
}

bool ct_nccl_is_host_memory(const void *at, size_t bytes)
{
    bool is_on_device = true;

    return bytes && find_place(at, &is_on_device) == cudaSuccess && !is_on_device;
}
