/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: which members were heard from lately, by the server's clock alone.
 *
 * All leases of a queue last equally long, so the renewed one moves to the end and the first
 * is always the next to expire: every call is O(1), however many there are. Pure. */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/list.h"

struct ct_lease {
    struct ct_list node; /* embedded in the leased struct */
    uint64_t renewed_ms;
};

struct ct_lease_queue {
    struct ct_list head;
    uint64_t duration_ms;
};

void ct_lease_queue_init(struct ct_lease_queue *queue, uint64_t duration_ms);
void ct_lease_start(struct ct_lease_queue *queue, struct ct_lease *lease,
                    uint64_t now_ms);
void ct_lease_renew(struct ct_lease_queue *queue, struct ct_lease *lease,
                    uint64_t now_ms);
/* May be called twice. */
void ct_lease_end(struct ct_lease *lease);
/* When the next lease ends; UINT64_MAX: the queue is empty. */
uint64_t ct_lease_next_ms(const struct ct_lease_queue *queue);
/* The first lease that has ended, or NULL. It stays in the queue until ct_lease_end(). */
struct ct_lease *ct_lease_find_expired(const struct ct_lease_queue *queue,
                                       uint64_t now_ms);
