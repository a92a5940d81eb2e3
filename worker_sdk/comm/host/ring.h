/* SPDX-License-Identifier: Apache-2.0 */
/* A byte queue in shared memory for each pair of members (struct ct_ring of the segment), and what
 * was taken out of it before anybody asked: up to CT_INBOX_BYTES of a peer. Nothing waits. */
#pragma once

#include "worker_sdk/comm/host/segment.h"

/* Moves as much as goes, and wakes the other end. Returns bytes. */
size_t ct_ring_put(struct ct_segment *segment, int member, const void *data,
                   size_t bytes);
size_t ct_ring_take(struct ct_segment *segment, int member, void *data, size_t bytes);
bool ct_ring_has_room(const struct ct_segment *segment, int member);
bool ct_ring_has_bytes(const struct ct_segment *segment, int member);

/* Something is in a ring to us, and there is room in the inbox. */
bool ct_ring_has_mail(const struct ct_segment *segment);
/* Takes it in, so that members that all send before they receive do not wait for each other.
 * 1: some; 0: there was none; -ENOMEM. */
int ct_ring_take_mail(struct ct_segment *segment);
