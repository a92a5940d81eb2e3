/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of all members of a world, in pieces for MEMBERS: the agent with the worker store
 * accepts clients from these (allow_list.h). Pure.
 *
 *     struct roster roster;
 *     roster_init(&roster, round);
 *     while (roster_next(&roster, &members))
 *         send(&members);
 *
 * For each member: the address that the server sees, and those in its JOIN, up to ALLOW_LIST_MAX
 * addresses in all. */
#pragma once

#include "rendezvous/round/round.h"

struct roster {
    const struct round *round; /* borrowed: the round must not change meanwhile */
    size_t member;             /* index of the next member in the table */
    size_t quota;              /* addresses a member, at least 1 */
    bool is_over;
};

void roster_init(struct roster *roster, const struct round *round);
/* False after the last piece. There is always at least one piece, perhaps an empty one. */
bool roster_next(struct roster *roster, struct ct_members *out);
