/* SPDX-License-Identifier: Apache-2.0 */
/* What one agent of a run tells the others, and the round has no part in. */
#pragma once

#include "rendezvous/session/peer.h"
#include "rendezvous/session/run.h"

/* A signal that `peer` got, to every other member of its world. */
void relay_signal(struct peer *peer, const struct ct_message *message);

/* A question where workers are, to those of the world that are meant; or an answer, to who asked. */
void relay_stacks(struct peer *peer, const struct ct_message *message);

/* A fault that is asked for, to the node that has its target; or what became of it, to who asked. */
void relay_chaos(struct peer *peer, const struct ct_message *message);

/* When ranks of a node have made which call, to the node of group rank 0, which compares them. */
void relay_calls(struct peer *peer, const struct ct_message *message);
