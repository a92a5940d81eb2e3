/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's one connection to the rendezvous server.
 *
 *     DOWN ──open──> CONNECTING ──connected──> GREETING ──WELCOME──> UP
 *      ▲                 │ ▲ next address, pause       │              │
 *      │                 └─┴────────── failed ─────────┘              │
 *      └────────── time is up, refused ──────┴──── lease is over ─────┤
 *                        ▲ resume: with our ticket, until the lease ends │
 *                        └────────────── closed ────────────────────────┘
 *
 * While UP the link sends heartbeats, which the server acknowledges. The server counts our
 * silence from the last heartbeat that it got; we count from the time at which that heartbeat
 * was *sent*, which is earlier, and go DOWN after four fifths of the lease: early enough to end
 * the workers before the server declares us lost. So two worlds never live at the same time. A
 * server that cannot be replaced, and that is silent while its host acknowledges our heartbeats,
 * is paused and will read them later: see worker_sdk/wire/message.h.
 *
 * A node that has had a START belongs to the instance of the run that the START came from: the
 * link does not accept a server of another instance, and continues looking until its time is up.
 *
 * After the first WELCOME another run's server at that address ends nothing: ours may come back, so
 * the link continues looking until its time is up.
 *
 * A connection that breaks while UP is made again, if the server gave us a ticket and
 * get_resume_state() returns a state: the membership then continues unchanged. Messages sent
 * meanwhile are lost; in on_resumed the agent sends again those that still matter. Our lease
 * continues, too: only acknowledgements renew it, and when it ends the link goes DOWN.
 *
 * With a token, WELCOME counts only after the server has proven that it knows the token: see
 * auth.h. */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/message.h"

struct link;

struct link_options {
    struct loop *loop;
    const struct ct_addr *servers; /* kept; tried in order */
    size_t server_count;
    /* Some ports may belong to other programs: one that is silent, uses another protocol or
     * serves another run is passed over. */
    bool tries_ports;
    /* Unless NULL, called before each round of attempts in place of `servers`: fills `out` and
     * returns how many addresses there are; 0: not known yet, ask again. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    /* the server can be replaced by another one, and we may hear of that late */
    bool may_be_replaced;
    const struct ct_hello *hello;      /* kept; the link fills in the nonce */
    const struct ct_auth_token *token; /* kept; NULL or empty: no proofs */
    bool uses_munge;                   /* instead of a token */
    bool wants_seal;                   /* only an encrypted connection */
    void *context;
    void (*on_up)(void *context, const struct ct_welcome *welcome);
    /* Every message but WELCOME, REFUSE and acknowledgements. HA_PLAN may come in place of
     * WELCOME, from a node that is not the rendezvous server, before a new node has had a START. */
    void (*on_message)(void *context, const struct ct_message *message);
    /* The link has ended: the connection broke or was silent while UP, no server answered in
     * time, or one refused us. The link is DOWN: link_connect() starts again. */
    void (*on_down)(void *context, const struct ctrun_error *why);
    /* Our present state, enum ct_resume_state; 0: do not resume. May be NULL. */
    uint8_t (*get_resume_state)(void *context);
    /* The connection broke; for left_ms the link tries to resume on a new one. May be NULL. */
    void (*on_break)(void *context, const struct ctrun_error *why, uint64_t left_ms);
    void (*on_resumed)(void *context, const struct ct_resumed *resumed);
    /* Still trying: `why` is the error of the last attempt; -EXFULL: the server has no room for
     * this node yet. May be NULL. */
    void (*on_connecting)(void *context, const struct ctrun_error *why,
                          uint64_t waited_ms);
};

int link_open(struct link **out, const struct link_options *options,
              struct ctrun_error *err);
/* Tries for at most timeout_ms. */
void link_connect(struct link *link, uint64_t timeout_ms);
/* From now on another server may replace this one: `find` is called before each round of
 * attempts. A present connection stays. */
void link_find_servers(struct link *link,
                       size_t (*find)(void *context, struct ct_addr *out, size_t max));
/* Like link_connect(), for a server that went down: resumes the membership where possible, else
 * joins as a new node. Only with find_servers, where a membership outlives the link. */
void link_seek(struct link *link, uint64_t timeout_ms);
bool link_is_up(const struct link *link);
/* The machine name that the last server to welcome us gave; empty: there was none, or it gave no
 * name. */
const char *link_server_host(const struct link *link);
/* The instance of the run that the server serves, or served last, and the newest START of that
 * instance that this node has had; 0: none. */
uint64_t link_instance(const struct link *link, uint64_t *generation);
/* Whether that server is, or was, a ctrund. */
bool link_is_at_ctrund(const struct link *link);
/* The addresses of both ends of the connection; false while there is none. */
bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote);
/* For on_down: whether the link was UP; whether the server's host was silent, too, so that the
 * server may be alive and the network broken. */
bool link_was_up(const struct link *link);
bool link_was_silent(const struct link *link);
/* For on_down: how long the link tried to resume; 0: it did not. */
uint64_t link_tried_ms(const struct link *link);
/* Until when this node's workers may live, from the heartbeats acknowledged so far
 * (agent/link/node_lease.h); each acknowledgement also renews the guard's fence. */
uint64_t link_deadline_ms(const struct link *link);
/* Progress that the next heartbeats carry. */
void link_set_progress(struct link *link, uint64_t generation, int64_t step);
/* When a worker of this node last made progress, monotonic; 0: not measured. */
void link_set_moved(struct link *link, uint64_t moved_ms);
/* Queues the message. When the link is not UP the message is dropped without a report (the end
 * of the link is or will be reported). */
void link_send(struct link *link, const struct ct_message *message);
/* For ctrunctl chaos: the connection breaks, and no new one is made until is_cut is false. */
void link_cut(struct link *link, bool is_cut);
/* For ctrunctl chaos: messages leave by_ms later, or up to twice that where others were queued
 * just before; 0: at once. */
void link_slow(struct link *link, uint64_t by_ms);
/* Sends what is queued, waiting at most timeout_ms, and frees. NULL is fine. */
void link_close(struct link *link, uint64_t timeout_ms);
