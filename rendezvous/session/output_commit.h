/* SPDX-License-Identifier: Apache-2.0 */
/* Output commit: holds messages to agents until they may be sent.
 *
 *     output_commit_send ──> may send? ──yes──> socket
 *                                └─no──> held, in order ── output_commit_release ──> socket
 *
 * An elected server (launcher/etcd/election.h) may send only while its lease lasts, by its own
 * clock, and the messages of a step only once the journal of that step is stored in etcd. Another
 * thread updates both; the server continues meanwhile, and its messages are held, except those of a
 * handshake and refusals. If a held message is never released, agents never see the step.
 *
 * A heartbeat is acknowledged only if this server was still the elected one after the heartbeat
 * came: after a renewal of the server's lease that began later has succeeded. One renewal covers
 * all waiting heartbeats. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "rendezvous/net/conn.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/wire/seal.h"

struct output_commit {
    atomic_uint_least64_t until_ms; /* any thread: messages may be sent until then */
    atomic_uint_least64_t kept; /* any thread: the journal is kept up to this number */
    atomic_uint_least64_t wanted; /* the last journal number that was handed over */
    atomic_uint_least64_t
        renewed_ms;      /* any thread: begin of the last successful renewal */
    struct ct_list held; /* struct outbox with held messages */
    struct ct_list owed; /* struct outbox with unacknowledged heartbeats */
    /* Acknowledgements wait for a renewal. On the server's thread. May be NULL. */
    void (*on_owed)(void *context);
    void *context;
};

/* A heartbeat that came at arrived_ms; 0: none. */
struct output_commit_owed {
    uint64_t arrived_ms;
    struct ct_heartbeat heartbeat;
};

/* The messages to one agent: sent on its connection, held first if there is an output commit. */
struct outbox {
    struct conn *conn;   /* borrowed */
    struct ct_seal seal; /* zeroed: off */
    struct ct_buf held;  /* held messages, not sealed yet */
    struct ct_list held_node;
    /* Not acknowledged yet: the oldest heartbeat, the newest. */
    struct output_commit_owed owed[2];
    struct ct_list owed_node;
};

void outbox_init(struct outbox *outbox, struct conn *conn);
/* Drops the held messages and unlinks the outbox from the output commit. */
void outbox_deinit(struct outbox *outbox);

/* True if the acknowledgement of a heartbeat that came at arrived_ms may be sent. */
static inline bool output_commit_may_acknowledge(uint64_t arrived_ms,
                                                 uint64_t renewed_ms)
{
    return renewed_ms > arrived_ms;
}

void output_commit_init(struct output_commit *commit);
bool output_commit_may_send(const struct output_commit *commit);
/* Sends the held messages that may be sent now. On the server's thread. */
void output_commit_release(struct output_commit *commit);
/* Drops all held messages: they are never sent. */
void output_commit_drop(struct output_commit *commit);

/* Sends the messages now, or once they may be sent. commit NULL: no other server can be elected, so
 * now. Closes the connection of an agent that does not read. */
void output_commit_send(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message);
void output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                               const struct ct_heartbeat *heartbeat);
/* True if the message is held, to be sent later. */
bool output_commit_hold(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message);
