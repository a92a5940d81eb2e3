/* SPDX-License-Identifier: Apache-2.0 */
/* Room for another run where nobody proves anything: one address cannot take all of it.
 *
 * A run whose nodes have all gone stays until no worker of it can be alive, and who made it chooses how
 * long that is. So these are few, of one address and of all: the oldest makes room. It is
 * remembered (run_memory.h), so that who comes back to it waits for its workers as before. */
#pragma once

#include "rendezvous/session/run.h"

/* Makes room for a run that somebody at `from` (borrowed) is about to found. False: that address has
 * RUNS_PER_ADDRESS_MAX. Counts by the 64 bits of its network where it is of IPv6. */
bool run_room_make(struct runs *runs, const struct ct_addr *from);
