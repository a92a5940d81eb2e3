/* SPDX-License-Identifier: Apache-2.0 */
/* What one agent of a run tells the others, and the round has no part in. */
#ifndef RENDEZVOUS_RELAY_H
#define RENDEZVOUS_RELAY_H

#include "rendezvous/run.h"

/* A signal that `peer` got, to every other member of its world. */
void relay_signal(const struct peer *peer, const struct ct_signal *message);

#endif
