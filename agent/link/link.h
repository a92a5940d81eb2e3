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
 * While UP it sends heartbeats and wants them acknowledged. The server counts our silence from
 * the last heartbeat that it got; we count from when that one was *sent*, which is earlier, and
 * go down after four fifths of its patience: early enough to end the workers before the server
 * declares us lost. Two worlds that both live cannot be. A server that nobody can replace, and that
 * is silent while its host acknowledges our heartbeats, is paused and will read them: see
 * worker_sdk/wire/message.h.
 *
 * A node that has had a START belongs to the founding of the run that it came from, its instance:
 * a server of another one does not get it, and the link continues looking until its time is up.
 *
 * A connection that breaks while UP is made again, if the server gave us a ticket and somebody says
 * what we are to resume as: the membership continues as if nothing had been. Messages that were sent
 * meanwhile are lost; on_resumed is the time to say again what matters. Our lease continues, too: it
 * is renewed by acknowledgements only, and when it ends the link goes down.
 *
 * With a token the WELCOME counts only after the server has proven the same one: see auth.h. */
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
    /* Some of them may be somebody else's: who is silent, speaks something else or serves another run
     * is passed over. */
    bool tries_ports;
    /* Asked before each round of attempts instead, unless NULL: fills `out` and returns how many
     * there are; 0: not known yet, ask again. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    bool may_be_replaced; /* the server, by another one that we may not hear of first */
    const struct ct_hello *hello;      /* kept; the nonce is ours to fill */
    const struct ct_auth_token *token; /* kept; NULL or empty: nobody proves anything */
    bool uses_munge;                   /* instead of a token */
    bool wants_seal;                   /* an encrypted link, or none */
    void *context;
    void (*on_up)(void *context, const struct ct_welcome *welcome);
    /* Everything but WELCOME, REFUSE and acknowledgements; HA_PLAN also instead of WELCOME, from one
     * that is not the host, before a new node has had a START. */
    void (*on_message)(void *context, const struct ct_message *message);
    /* The connection is gone for good: it broke or fell silent while UP, nobody answered in
     * time, or we were refused. The link is DOWN: link_connect() starts again. */
    void (*on_down)(void *context, const struct ctrun_error *why);
    /* What we are now, enum ct_resume_state; 0: do not resume. May be NULL. */
    uint8_t (*get_resume_state)(void *context);
    /* The connection broke, and for left_ms we try to resume on another one. May be NULL. */
    void (*on_break)(void *context, const struct ctrun_error *why, uint64_t left_ms);
    void (*on_resumed)(void *context, const struct ct_resumed *resumed);
    /* Still trying: `why` is the last attempt's trouble. May be NULL. */
    void (*on_connecting)(void *context, const char *why, uint64_t waited_ms);
};

int link_open(struct link **out, const struct link_options *options,
              struct ctrun_error *err);
/* Tries for at most timeout_ms. */
void link_connect(struct link *link, uint64_t timeout_ms);
/* From now on another server may take this one's place: asked before each round of attempts. What
 * is connected stays so. */
void link_find_servers(struct link *link,
                       size_t (*find)(void *context, struct ct_addr *out, size_t max));
/* The same, for a server that went down: takes the membership up again where it can, else as new.
 * With find_servers only, where a membership outlives the link. */
void link_seek(struct link *link, uint64_t timeout_ms);
bool link_is_up(const struct link *link);
/* The machine of the server that welcomed us last, by its own name; empty: none has, or it told
 * none. */
const char *link_server_host(const struct link *link);
/* The instance of the run that the server serves, or served last, and the newest START of it that
 * this node has had; 0: none. */
uint64_t link_instance(const struct link *link, uint64_t *generation);
/* Our end and the server's of the connection; false while there is none. */
bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote);
/* In on_down: the link was UP; no word came from the server's host either, so that it may be there
 * and the way to it broken. */
bool link_was_up(const struct link *link);
bool link_was_silent(const struct link *link);
/* ... for how long it was tried to resume; 0: it was not. */
uint64_t link_tried_ms(const struct link *link);
/* Until when this node's workers may live, by what the server has acknowledged so far
 * (agent/link/node_lease.h); renewed in the guard's fence with each acknowledgement. */
uint64_t link_deadline_ms(const struct link *link);
/* What the next heartbeats carry. */
void link_set_progress(struct link *link, uint64_t generation, int64_t step);
/* When a worker of this node made progress last, monotonic; 0: nobody looks. */
void link_set_moved(struct link *link, uint64_t moved_ms);
/* Queues the message; lost without a word when the link is not UP (its end was or will be
 * told). */
void link_send(struct link *link, const struct ct_message *message);
/* For ctrunctl chaos: the connection breaks, and none is made until is_cut is false. */
void link_cut(struct link *link, bool is_cut);
/* The same: what is said leaves by_ms later, and up to twice that where more was said just before; 0: at once. */
void link_slow(struct link *link, uint64_t by_ms);
/* Sends what is queued, waiting at most timeout_ms, and frees. NULL is fine. */
void link_close(struct link *link, uint64_t timeout_ms);
