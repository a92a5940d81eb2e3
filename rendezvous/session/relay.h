/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that the server passes on from one agent of a run to others, without the round. */
#pragma once

#include "rendezvous/session/peer.h"
#include "rendezvous/session/run.h"

/* Passes on a signal that `peer` got, to every other member of its world. */
void relay_signal(struct peer *peer, const struct ct_message *message);

/* Passes on a request for stacks to the nodes concerned; or an answer to the agent that asked. */
void relay_stacks(struct peer *peer, const struct ct_message *message);

/* Passes on a fault to inject to the node that has its target; or the result to the agent that
 * asked. */
void relay_chaos(struct peer *peer, const struct ct_message *message);

/* Passes on the times of a node's collective calls to the node of group rank 0, which compares
 * them. */
void relay_calls(struct peer *peer, const struct ct_message *message);
/* The same of its ranks that have not connected to the worker store. */
void relay_absent(struct peer *peer, const struct ct_message *message);
