/* SPDX-License-Identifier: Apache-2.0 */
/* Send and receive in shared memory: a byte queue for each pair of members (struct ct_ring of
 * the segment). A message is its length, then its bytes. */
#ifndef CT_COMM_RING_H
#define CT_COMM_RING_H

#include "worker_sdk/comm/segment.h"

/* Blocks until all of call->in is in the queue to call->peer. 0, or as ct_segment_wait(). */
int ct_ring_send(struct ct_segment *segment, const struct ct_call *call,
                 struct ctrun_error *err);
/* Blocks until call->bytes came from call->peer. CTRUN_E_MISMATCH: it sends another length. */
int ct_ring_recv(struct ct_segment *segment, const struct ct_call *call,
                 struct ctrun_error *err);

#endif
