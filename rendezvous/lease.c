/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/lease.h"

void lease_queue_init(struct lease_queue *queue, uint64_t duration_ms)
{
    ct_list_init(&queue->head);
    queue->duration_ms = duration_ms;
}

void lease_start(struct lease_queue *queue, struct lease *lease, uint64_t now_ms)
{
    lease->renewed_ms = now_ms;
    ct_list_add(&queue->head, &lease->node);
}

void lease_renew(struct lease_queue *queue, struct lease *lease, uint64_t now_ms)
{
    ct_list_remove(&lease->node);
    lease_start(queue, lease, now_ms);
}

void lease_end(struct lease *lease)
{
    ct_list_remove(&lease->node);
}

static struct lease *first(const struct lease_queue *queue)
{
    if (ct_list_is_empty(&queue->head))
        return NULL;
    return ct_list_entry(queue->head.next, struct lease, node);
}

uint64_t lease_next_ms(const struct lease_queue *queue)
{
    const struct lease *lease = first(queue);

    return lease ? lease->renewed_ms + queue->duration_ms : UINT64_MAX;
}

struct lease *lease_find_expired(const struct lease_queue *queue, uint64_t now_ms)
{
    return lease_next_ms(queue) <= now_ms ? first(queue) : NULL;
}
