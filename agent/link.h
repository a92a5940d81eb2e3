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
 * declares us lost. Two worlds that both live cannot be. A server that is silent while its host
 * acknowledges our heartbeats is paused and will read them: see worker_sdk/wire/message.h.
 *
 * A connection that breaks while UP is made again, if the server gave us a ticket and somebody says
 * what we are to resume as: the membership goes on as if nothing had been. Messages that were sent
 * meanwhile are lost; on_resumed is the time to say again what matters. Our lease goes on, too: it
 * is renewed by acknowledgements only, and when it ends the link goes down.
 *
 * With a token the WELCOME counts only after the server has proven the same one: see auth.h. */
#ifndef AGENT_LINK_H
#define AGENT_LINK_H

#include "agent/loop.h"
#include "worker_sdk/base/addr.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/message.h"

struct link;

struct link_options {
    struct loop *loop;
    const struct ct_addr *servers; /* kept; tried in order */
    size_t server_count;
    /* Asked before each round of attempts instead, unless NULL: fills `out` and returns how many
     * there are; 0: not known yet, ask again. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    const struct ct_hello *hello;      /* kept; the nonce is ours to fill */
    const struct ct_auth_token *token; /* kept; NULL or empty: nobody proves anything */
    bool uses_munge;                   /* instead of a token */
    bool wants_seal;                   /* an encrypted link, or none */
    void *context;
    void (*on_up)(void *context, const struct ct_welcome *welcome);
    /* Everything but WELCOME, REFUSE and acknowledgements. */
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
/* The same, for a server that went down: takes the membership up again where it can, else as new.
 * With find_servers only, where a membership outlives the link. */
void link_seek(struct link *link, uint64_t timeout_ms);
/* The same, at other addresses from now on; count 0: at those of the options again. Nobody there
 * knows a membership of ours. */
void link_follow(struct link *link, const struct ct_addr *servers, size_t count,
                 uint64_t timeout_ms);
/* The server is in this process: while it is paused, the others wait for it. */
void link_set_serving(struct link *link, bool is_serving);
/* For how long no ECHO came, and whose the last one was; 0: none ever came. */
uint64_t link_echo_age_ms(const struct link *link, uint64_t *server);
bool link_is_up(const struct link *link);
/* Our end and the server's of the connection; false while there is none. */
bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote);
/* In on_down: the link was UP; no word came from the server's host either, so that it may be there
 * and the way to it broken. */
bool link_was_up(const struct link *link);
bool link_was_silent(const struct link *link);
/* ... it was there, and did not want us. */
bool link_was_refused(const struct link *link);
/* ... for how long it was tried to resume; 0: it was not. */
uint64_t link_tried_ms(const struct link *link);
/* Until when this node's workers may live, by what the server has acknowledged so far; renewed
 * in the guard's fence with each acknowledgement (agent/fence.h). */
uint64_t link_lease_ms(const struct link *link);
/* What the next heartbeats carry. */
void link_set_progress(struct link *link, uint64_t generation, int64_t step);
/* Queues the message; lost without a word when the link is not UP (its end was or will be
 * told). */
void link_send(struct link *link, const struct ct_message *message);
/* Sends what is queued, waiting at most timeout_ms, and frees. NULL is fine. */
void link_close(struct link *link, uint64_t timeout_ms);

#endif
