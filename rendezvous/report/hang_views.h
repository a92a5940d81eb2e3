/* SPDX-License-Identifier: Apache-2.0 */
/* A stuck rank, or one whose collective has timed out, among all ranks of the world: what each node saw of its
 * own ranks when that was reported, and which had ended with 0.
 *
 *     world      : of 8 ranks on 2 nodes 7 wait in a collective (0-3, 5-7); last steps 41 to 42
 *     world      : of 3 ranks on 3 nodes 2 wait in a collective (0, 2), 1 had ended with 0 (1)
 *
 * The node that reports the rank knows only its own ranks, so the server makes this line, and says what can be done where
 * that depends on the others.
 * Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

struct hang_ranks {
    uint32_t count, unnamed; /* unnamed: of them, without room in `text` */
    char text[256];          /* "0-3, 5-7" */
};

struct hang_views {
    uint32_t world_size;
    uint32_t nodes; /* nodes that have reported ranks */
    uint32_t seen;  /* ranks that ran */
    struct hang_ranks waiting, ended;
    int64_t lowest, furthest;
};

/* Adds what a node of a world of that size reports. */
void hang_views_add(struct hang_views *views, const struct ct_stopped *stopped,
                    uint32_t world_size);
/* Adds, as far as there is room, to the facts of such a rank: the line, if more than one node has reported; and what can
 * be done, where it is not known that a rank is behind. */
void hang_views_add_facts(const struct hang_views *views, struct ct_failure *failure);
