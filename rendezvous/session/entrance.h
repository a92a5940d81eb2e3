/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of agents: after HELLO, and PROOF if a secret is needed (admission.h), an agent is a
 * new member of its run, or again the member that it was before its connection broke; or it is
 * refused. */
#pragma once

#include "rendezvous/session/peer.h"

/* Handlers for dispatch.c. Each may refuse the peer; the connection is closed once the refusal is
 * sent. */
void entrance_on_hello(struct peer *peer, const struct ct_message *message);
void entrance_on_proof(struct peer *peer, const struct ct_message *message);
/* A plan from a node of a run with an own etcd: it tells where the run is served that this server
 * would start. */
void entrance_on_plan(struct peer *peer, const struct ct_message *message);
/* Refuses one that wants to be a member: those who wait for it are told. */
void entrance_turn_away(struct peer *peer, int code, const char *text);
