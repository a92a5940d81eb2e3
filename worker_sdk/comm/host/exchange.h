/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between members: sends, receives, and the collectives that are made of them. All that are
 * given move at the same time, through shared memory to a member of our host and through TCP to the
 * others; those to one peer in their order, each a header and its data.
 *
 * Whoever waits for room to send takes in what has come for it meanwhile, so that members that
 * all send before they receive do not wait for each other; up to CT_INBOX_BYTES of a peer. */
#pragma once

#include "worker_sdk/comm/host/host_tcp.h"
#include "worker_sdk/comm/host/segment.h"

struct ct_exchange {
    int size, me;
    const struct ct_peer *peers; /* kept */
    const int *local_of; /* kept; by member: its place in segment, -1: reached by TCP */
    struct ct_segment *segment; /* kept; NULL: nobody is reached so */
    struct ct_host_tcp *tcp;    /* kept; likewise */
    uint64_t *
        rounds; /* owned; of each member's lanes in and out: the last round that a message
                       * waits in it */
    uint64_t round;
    _Atomic bool is_nudged;
    int bell; /* owned; eventfd, rung by ct_exchange_nudge(); -1: no TCP */
};

/* The rest is filled in before. 0, or a negative errno. */
int ct_exchange_init(struct ct_exchange *exchange);
/* Accepts a zeroed one. */
void ct_exchange_deinit(struct ct_exchange *exchange);

/* As the back end's move(). */
int ct_exchange_move(struct ct_exchange *exchange, struct ct_call *first, bool wait,
                     struct ctrun_error *err);
void ct_exchange_nudge(struct ct_exchange *exchange);
