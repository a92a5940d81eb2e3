/* SPDX-License-Identifier: Apache-2.0 */
/* The members of the running world as ROSTER carries them, piece by piece. Pure.
 *
 *     for (size_t first = 0; heir_list_fill(&roster, round, first); first += roster.count)
 *         send(&roster);
 */
#ifndef RENDEZVOUS_HEIR_LIST_H
#define RENDEZVOUS_HEIR_LIST_H

#include "rendezvous/round.h"

/* The piece that begins with the member of rank `first`. False when there is none. */
bool heir_list_fill(struct ct_roster *out, const struct round *round, size_t first);

#endif
