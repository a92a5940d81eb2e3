/* SPDX-License-Identifier: Apache-2.0 */
/* A byte queue in shared memory for each pair of members (struct ct_ring of the segment), and an
 * inbox for bytes that were received before a call asked for them: up to CT_INBOX_BYTES of a peer.
 * Nothing waits. */
#pragma once

#include "worker_sdk/comm/host/segment.h"

/* Moves as many bytes as possible, and wakes the other end. Returns the count. */
size_t ct_ring_put(struct ct_segment *segment, int member, const void *data,
                   size_t bytes);
size_t ct_ring_take(struct ct_segment *segment, int member, void *data, size_t bytes);
bool ct_ring_has_room(const struct ct_segment *segment, int member);
bool ct_ring_has_bytes(const struct ct_segment *segment, int member);

/* Whether a ring to us has bytes and the inbox has room. */
bool ct_ring_has_mail(const struct ct_segment *segment);
/* Moves those bytes to the inboxes, so that members that all send before they receive do not wait
 * for each other. 1: some; 0: none; -ENOMEM. */
int ct_ring_take_mail(struct ct_segment *segment);
