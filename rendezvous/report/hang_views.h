/* SPDX-License-Identifier: Apache-2.0 */
/* A stuck rank, or one whose collective has timed out, among all ranks of the world: what each node saw of its
 * own ranks when that was reported.
 *
 *     world      : of 8 ranks on 2 nodes 7 wait in a collective (0-3, 5-7); last steps 41 to 42
 *
 * The node that reports the stuck rank knows only its own ranks, so the server makes this line.
 * Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

struct hang_views {
    uint32_t nodes; /* nodes that have reported */
    uint32_t ranks, waiting;
    int64_t lowest, furthest;
    uint32_t unnamed; /* waiting ranks without room in `text` */
    char text[256];   /* "0-3, 5-7" */
};

void hang_views_add(struct hang_views *views, const struct ct_hang_view *view);
/* Adds the line to the facts of such a rank, if more than one node has reported and there is
 * room. */
void hang_views_add_fact(const struct hang_views *views, struct ct_failure *failure);
