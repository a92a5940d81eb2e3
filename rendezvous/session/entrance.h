/* SPDX-License-Identifier: Apache-2.0 */
/* How an agent comes in: HELLO, and PROOF where a secret is asked for (admission.h), make it a member of its run, or the
 * member again that it was before its connection broke; or it is refused. */
#pragma once

#include "rendezvous/session/peer.h"

/* Handlers of dispatch.c. Each may refuse the peer, whose connection is closed then once the refusal is sent. */
void entrance_on_hello(struct peer *peer, const struct ct_message *message);
void entrance_on_proof(struct peer *peer, const struct ct_message *message);
/* Of a node of another run's etcd, which says where the run is that this server would found. */
void entrance_on_plan(struct peer *peer, const struct ct_message *message);
/* Refuses one that wants to be a member: those who wait for it are told. */
void entrance_turn_away(struct peer *peer, int code, const char *text);
