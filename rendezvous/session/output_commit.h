/* SPDX-License-Identifier: Apache-2.0 */
/* What this server sends to agents waits here until it may be sent: output commit.
 *
 *     output_commit_send ──> may send? ──yes──> socket
 *                                └─no──> held, in order ── output_commit_release ──> socket
 *
 * A server that was elected (launcher/etcd/election.h) may speak only while its lease lasts, by its own
 * clock, and what follows from a step only once the journal of that step is kept elsewhere. Both
 * change on another thread; the server continues meanwhile, and nobody hears of it. A held message
 * that is never released was never said: to the agents this server is silent.
 *
 * A heartbeat is acknowledged only when this server was the elected one after it came: when a
 * renewal of its lease that began later has succeeded. One renewal serves all that wait. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "rendezvous/net/conn.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/wire/seal.h"

struct output_commit {
    atomic_uint_least64_t until_ms; /* any thread: speak before then */
    atomic_uint_least64_t kept; /* any thread: the journal is kept up to this number */
    atomic_uint_least64_t wanted; /* the last one that was given away */
    atomic_uint_least64_t
        renewed_ms;      /* any thread: the last renewal that succeeded began */
    struct ct_list held; /* struct outbox, those with held messages */
    struct ct_list owed; /* struct outbox, those that wait for acknowledgements */
    /* Acknowledgements wait for a renewal. On the server's thread. May be NULL. */
    void (*on_owed)(void *context);
    void *context;
};

/* A heartbeat that came at arrived_ms; 0: none. */
struct output_commit_owed {
    uint64_t arrived_ms;
    struct ct_heartbeat heartbeat;
};

/* What goes to one agent: through its connection, held first if there is an output commit. */
struct outbox {
    struct conn *conn;   /* kept */
    struct ct_seal seal; /* zeroed: off */
    struct ct_buf held;  /* with an output commit: not sent yet */
    struct ct_list held_node;
    /* Not acknowledged yet: the oldest heartbeat, the newest. */
    struct output_commit_owed owed[2];
    struct ct_list owed_node;
};

void outbox_init(struct outbox *outbox, struct conn *conn);
/* What is held will never be sent. The output commit has forgotten it. */
void outbox_deinit(struct outbox *outbox);

/* The acknowledgement of a heartbeat that came at arrived_ms may be sent. */
static inline bool output_commit_may_acknowledge(uint64_t arrived_ms,
                                                 uint64_t renewed_ms)
{
    return renewed_ms > arrived_ms;
}

void output_commit_init(struct output_commit *commit);
bool output_commit_may_send(const struct output_commit *commit);
/* Sends what is held, as far as it may be sent. On the server's thread. */
void output_commit_release(struct output_commit *commit);
/* Forgets what is held: it will never be said. */
void output_commit_drop(struct output_commit *commit);

/* All of these now, or when they may. commit NULL: nobody can replace this server, so now. The
 * connection of an agent that does not read is closed. */
void output_commit_send(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message);
void output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                               const struct ct_heartbeat *heartbeat);
/* True when the message was taken, to be sent later. */
bool output_commit_hold(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message);
