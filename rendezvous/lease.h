/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: who has been heard of lately, by the server's clock alone.
 *
 * All leases of a queue last equally long, so the renewed one moves to the end and the first
 * is always the next to expire: every call is O(1), however many there are. Pure. */
#ifndef RENDEZVOUS_LEASE_H
#define RENDEZVOUS_LEASE_H

#include <stdint.h>

#include "worker_sdk/base/list.h"

struct lease {
    struct ct_list node; /* embedded in what is leased */
    uint64_t renewed_ms;
};

struct lease_queue {
    struct ct_list head;
    uint64_t duration_ms;
};

void lease_queue_init(struct lease_queue *queue, uint64_t duration_ms);
void lease_start(struct lease_queue *queue, struct lease *lease, uint64_t now_ms);
void lease_renew(struct lease_queue *queue, struct lease *lease, uint64_t now_ms);
/* Twice is harmless. */
void lease_end(struct lease *lease);
/* When the next one runs out; UINT64_MAX: there is none. */
uint64_t lease_next_ms(const struct lease_queue *queue);
/* The first lease that has run out, or NULL. It stays in the queue until lease_end(). */
struct lease *lease_find_expired(const struct lease_queue *queue, uint64_t now_ms);

#endif
