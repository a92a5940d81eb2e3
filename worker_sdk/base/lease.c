/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/lease.h"

void ct_lease_queue_init(struct ct_lease_queue *queue, uint64_t duration_ms)
{
    ct_list_init(&queue->head);
    queue->duration_ms = duration_ms;
}

void ct_lease_start(struct ct_lease_queue *queue, struct ct_lease *lease,
                    uint64_t now_ms)
{
    lease->renewed_ms = now_ms;
    ct_list_add(&queue->head, &lease->node);
}

void ct_lease_renew(struct ct_lease_queue *queue, struct ct_lease *lease,
                    uint64_t now_ms)
{
    ct_list_remove(&lease->node);
    ct_lease_start(queue, lease, now_ms);
}

void ct_lease_end(struct ct_lease *lease)
{
    ct_list_remove(&lease->node);
}

static struct ct_lease *first(const struct ct_lease_queue *queue)
{
    if (ct_list_is_empty(&queue->head))
        return NULL;
    return ct_list_entry(queue->head.next, struct ct_lease, node);
}

uint64_t ct_lease_next_ms(const struct ct_lease_queue *queue)
{
    const struct ct_lease *lease = first(queue);

    return lease ? lease->renewed_ms + queue->duration_ms : UINT64_MAX;
}

struct ct_lease *ct_lease_find_expired(const struct ct_lease_queue *queue,
                                       uint64_t now_ms)
{
    return ct_lease_next_ms(queue) <= now_ms ? first(queue) : NULL;
}
