/* SPDX-License-Identifier: Apache-2.0 */
/* What the first node of a world prints about all its nodes: how many workers each has, and which
 * nodes run another program or have other versions of what the ranks share. Pure. */
#pragma once

#include "rendezvous/round/member.h"

/* Fills `layout`, `uses_gloo_scale`, `unlike` and `versions`. In the world's order. */
void world_layout_describe(struct ct_start *start, struct member **world, size_t count);
