/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of runs without a secret: one address must not use up the room for all runs.
 *
 * A run whose nodes are all gone stays until none of its workers can be alive, and the agent that
 * started it chose this time. So the number of such runs is limited, for each address and in all:
 * the oldest is dropped. It is remembered (run_memory.h), so that a later run of this id waits for
 * its workers as before. */
#pragma once

#include "rendezvous/session/run.h"

/* Makes room for a new run from the address `from` (borrowed). False: this address has
 * RUNS_PER_ADDRESS_MAX runs. IPv6 addresses count by the 64 bits of their network. */
bool run_room_make(struct runs *runs, const struct ct_addr *from);
