/* SPDX-License-Identifier: Apache-2.0 */
/* The agents' connections to this server: makes commands for their run's round of frames (run.h).
 *
 *     first frame ── dispatch_on_bytes(conn) ── HELLO ── WELCOME ── JOIN ... ── on_close = GONE
 *                     with a token: CHALLENGE ┤ ├ PROOF  (admission.h)
 *   RESUME, HELLO: a member on a new connection ├── WELCOME, RESUMED ...
 *                                             └── REFUSE: version, wrong run, closed, limits
 *
 * A run begins with the first HELLO of its id, which has its settings, and is forgotten with its
 * last member. */
#pragma once

#include "rendezvous/net/conn.h"
#include "rendezvous/session/admission.h"
#include "rendezvous/session/ha_relay.h"
#include "rendezvous/session/run.h"

struct store_stats;

struct dispatch {
    struct conn_pool *pool;
    const char *only_run_id; /* borrowed; NULL: any run */
    char host[CT_HOST_MAX];  /* this machine's name, for messages */
    struct admission_rules rules;
    struct output_commit *commit; /* borrowed; NULL: messages are sent at once */
    bool is_candidate;            /* another node serves: agents are refused */
    bool is_in_agent; /* part of an agent's process: without it the run may be lost */
    bool
        is_for_one_user; /* without a secret: other users of this machine are refused */
    uint64_t term;       /* for WELCOME; 0: no server was ever elected */
    struct ha_relay ha;  /* its hooks; zeroed: the run has no etcd of its own */
    /* Adds the numbers of all stores to *sum. May be NULL. */
    void (*sum_stores)(void *context, struct store_stats *sum);
    void *context;    /* borrowed, for sum_stores */
    struct runs runs; /* settings of all runs are above `list` */
    struct ct_seldom refused;
    /* Buffers for the current message: shared by all agents, as messages are handled one at a
     * time. */
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    union ct_message_room room;
};

/* `dispatch` is zeroed except the settings above `refused`. */
void dispatch_init(struct dispatch *dispatch);
/* conn speaks frames from now on; `data` are the bytes that it has sent already. */
void dispatch_on_bytes(struct dispatch *dispatch, struct conn *conn,
                       const uint8_t *data, size_t length);
/* True while agents of a run with a verdict are still connected and may read it. */
bool dispatch_has_verdicts_to_deliver(const struct dispatch *dispatch);
/* Another node serves now: forgets all runs and refuses agents, without a message to members. */
void dispatch_step_down(struct dispatch *dispatch);
/* After all connections are gone: frees what is left. The loop must run once more. */
void dispatch_close(struct dispatch *dispatch);
