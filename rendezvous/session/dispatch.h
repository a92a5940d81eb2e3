/* SPDX-License-Identifier: Apache-2.0 */
/* The agents that talk to this server: frames become commands of their run's round (run.h).
 *
 *     first frame ── dispatch_on_bytes(conn) ── HELLO ── WELCOME ── JOIN ... ── on_close = GONE
 *                     with a token: CHALLENGE ┤ ├ PROOF  (admission.h)
 *   RESUME, HELLO: a member on a new connection ├── WELCOME, RESUMED ...
 *                                             └── REFUSE: version, wrong run, closed, limits
 *
 * A run begins with the first HELLO of its id, which brings its settings, and is forgotten with
 * its last member. */
#pragma once

#include "rendezvous/net/conn.h"
#include "rendezvous/session/admission.h"
#include "rendezvous/session/ha_relay.h"
#include "rendezvous/session/run.h"

struct store_stats;

struct dispatch {
    struct conn_pool *pool;
    const char *only_run_id; /* kept; NULL: any run */
    char host[CT_HOST_MAX];  /* this machine's name, for people */
    struct admission_rules rules;
    struct output_commit *commit; /* kept; NULL: whatever is said goes out at once */
    bool is_candidate;            /* another node serves: agents are turned away */
    bool is_in_agent;             /* and without that agent the run may be lost */
    uint64_t term;                /* of WELCOME; 0: nobody was ever elected */
    struct ha_relay ha; /* its hooks; zeroed: the run has no etcd of its own */
    /* Adds the numbers of all stores to *sum. May be NULL. */
    void (*sum_stores)(void *context, struct store_stats *sum);
    void *context;    /* kept, for sum_stores */
    struct runs runs; /* what they share, above `list` */
    struct ct_seldom refused;
    /* Of the message that is being obeyed: one at a time, so one for all agents. */
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    union ct_message_room room;
};

/* `dispatch` is zeroed but for the settings above `refused`. */
void dispatch_init(struct dispatch *dispatch);
/* conn speaks frames from now on; `data` are the bytes that it has sent already. */
void dispatch_on_bytes(struct dispatch *dispatch, struct conn *conn,
                       const uint8_t *data, size_t length);
/* True while agents of a run that has its verdict are still connected: they read it. */
bool dispatch_has_verdicts_to_deliver(const struct dispatch *dispatch);
/* Another node hosts now: runs are forgotten, agents are turned away, nothing is said. */
void dispatch_step_down(struct dispatch *dispatch);
/* After all connections are gone: frees what is left. The loop must run once more. */
void dispatch_close(struct dispatch *dispatch);
