/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between members: sends, receives, and the collectives that are made of them. All given
 * messages move at the same time, through shared memory to a member of our host and by TCP to the
 * others. Messages to one peer move in their order; each is a header and its data.
 *
 * A member that waits for room to send takes in data that arrive for it meanwhile, up to
 * CT_INBOX_BYTES of each peer, so that members that all send before they receive do not wait for
 * each other. */
#pragma once

#include "worker_sdk/comm/host/host_tcp.h"
#include "worker_sdk/comm/host/segment.h"

struct ct_exchange {
    int size, me;
    const struct ct_peer *peers; /* kept */
    const int *local_of; /* kept; by member: its place in segment, -1: reached by TCP */
    struct ct_segment *segment; /* kept; NULL: no member is reached so */
    struct ct_host_tcp *tcp;    /* kept; likewise */
    /* owned; for each member's lanes in and out: the last round in which a message waited */
    uint64_t *rounds;
    uint64_t round;
    _Atomic bool is_nudged;
    int bell; /* owned; eventfd for ct_exchange_nudge(); -1: no TCP */
};

/* The caller fills in size, local_of, segment and tcp before. 0, or a negative errno. */
int ct_exchange_init(struct ct_exchange *exchange);
/* Accepts a zeroed one. */
void ct_exchange_deinit(struct ct_exchange *exchange);

/* As the back end's move(). */
int ct_exchange_move(struct ct_exchange *exchange, struct ct_call *first, bool wait,
                     struct ctrun_error *err);
void ct_exchange_nudge(struct ct_exchange *exchange);
