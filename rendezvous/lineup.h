/* SPDX-License-Identifier: Apache-2.0 */
/* What the first node of a world says about all of them: how many workers each has, and which
 * run another program. Pure. */
#ifndef RENDEZVOUS_LINEUP_H
#define RENDEZVOUS_LINEUP_H

#include "rendezvous/member.h"

/* Fills `layout` of every member's start, and `unlike` of the first one's. In the world's order. */
void lineup_describe(struct member **world, size_t count);

#endif
