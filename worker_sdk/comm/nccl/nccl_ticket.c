/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

/* A spare ticket keeps its event and its buffers. A taken ticket is in no list: only its caller
 * knows it. */
struct ticket *ct_nccl_take_ticket(struct nccl *nccl, struct ctrun_error *err)
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
        ct_fail(err, -ENOMEM, "nccl: out of memory");
        return NULL;
    }
    made = ct_nccl_api.cudaEventCreateWithFlags(&ticket->done, cudaEventDisableTiming);
    if (made == cudaSuccess)
        return ticket;
    (void)ct_nccl_cuda_fail(err, "event", made);
    free(ticket);
    return NULL;
}

void ct_nccl_spend(struct nccl *nccl, struct ticket *ticket)
{
    ct_list_remove(&ticket->node);
    ct_list_add(&nccl->spare, &ticket->node);
}

/* Only after the communicator has ended: buffers and events may be in use until then. */
void ct_nccl_free_tickets(struct ct_list *list)
{
    while (!ct_list_is_empty(list)) {
        struct ticket *ticket = ct_list_entry(list->next, struct ticket, node);

        ct_list_remove(&ticket->node);
        if (ticket->done)
            (void)ct_nccl_api.cudaEventDestroy(ticket->done);
        if (ticket->pinned)
            (void)ct_nccl_api.cudaFreeHost(ticket->pinned);
        if (ticket->device)
            (void)ct_nccl_api.cudaFree(ticket->device);
        free(ticket);
    }
}
