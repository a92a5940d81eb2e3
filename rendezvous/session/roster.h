/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of all members of a world, piece by piece, as MEMBERS carries them: what the
 * host of the worker store lets in (allow_list.h). Pure.
 *
 *     struct roster roster;
 *     roster_init(&roster, round);
 *     while (roster_next(&roster, &members))
 *         send(&members);
 *
 * Each member's address as the server sees it, and those that it says it has, as far as the
 * whole stays within ALLOW_LIST_MAX. */
#pragma once

#include "rendezvous/round/round.h"

struct roster {
    const struct round *round; /* borrowed: it must not change meanwhile */
    size_t member;             /* next, in the table */
    size_t quota;              /* addresses a member, at least 1 */
    bool is_over;
};

void roster_init(struct roster *roster, const struct round *round);
/* False when the last piece was given already. There is always one, it may be empty. */
bool roster_next(struct roster *roster, struct ct_members *out);
