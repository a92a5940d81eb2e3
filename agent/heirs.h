/* SPDX-License-Identifier: Apache-2.0 */
/* The members of this round, as ROSTER tells them: who may go on without the rendezvous' node
 * (worker_sdk/wire/takeover.h), and where they would serve. Pure. */
#ifndef AGENT_HEIRS_H
#define AGENT_HEIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "worker_sdk/wire/message.h"

struct heirs {
    uint64_t generation;
    uint32_t min_nodes;
    size_t count; /* 0: nobody may go on */
    size_t taken; /* of them have come */
    size_t leader;
    size_t self;                 /* count: not among them */
    struct ct_roster_node *list; /* by group rank; owned */
};

void heirs_clear(struct heirs *heirs);
/* The next piece; one that does not fit what came before clears it. */
void heirs_take(struct heirs *heirs, const struct ct_roster *roster, uint64_t own_key);
/* All are there, and this node is one of them. */
bool heirs_are_known(const struct heirs *heirs);
/* Its addresses with its port; returns how many. */
size_t heirs_find_addrs(const struct heirs *heirs, size_t i, struct ct_addr *out,
                        size_t max);
/* Who is lost is not asked, nor is one that cannot serve. */
bool heirs_is_candidate(const struct heirs *heirs, size_t i);

#endif
