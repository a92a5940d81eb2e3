/* SPDX-License-Identifier: Apache-2.0 */
/* What this server says to agents waits here until it may be said.
 *
 *     peer_send ──> gate open? ──yes──> socket
 *                      └─no──> held, in order ── gate_release ──> socket
 *
 * A server that was elected (launcher/election.h) may speak only while its lease lasts, by its own
 * clock, and what follows from a step only once the journal of that step is kept elsewhere. Both
 * change on another thread; the server goes on meanwhile, and nobody hears of it. A held message
 * that is never released was never said: to the agents this server is silent. */
#ifndef RENDEZVOUS_GATE_H
#define RENDEZVOUS_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "worker_sdk/base/list.h"

struct gate {
    atomic_uint_least64_t until_ms; /* any thread: speak before then */
    atomic_uint_least64_t kept; /* any thread: the journal is kept up to this number */
    atomic_uint_least64_t wanted; /* the last one that was given away */
    struct ct_list held;          /* struct peer, those with held messages */
};

void gate_init(struct gate *gate);
bool gate_is_open(const struct gate *gate);
/* Sends what is held, as far as the gate is open. On the server's thread. */
void gate_release(struct gate *gate);
/* Forgets what is held: it will never be said. */
void gate_drop(struct gate *gate);

struct peer;
struct ct_message;
/* True when the message was taken, to be sent later. */
bool gate_hold(struct gate *gate, struct peer *peer, const struct ct_message *message);

#endif
