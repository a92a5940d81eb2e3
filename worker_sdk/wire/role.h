/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of a node's workers: one role for all, or, if a job has several programs, a list in
 * which each role gets the next local ranks. Role ranks count over all nodes, in the order of the
 * nodes. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

/* The role of one worker. */
struct ct_role_at {
    int number;          /* in the list of its node; 0 when there is none */
    const char *name;    /* borrowed */
    uint32_t first;      /* local rank of the first worker that has it */
    uint32_t rank;       /* among all workers of that role */
    uint32_t world_size; /* how many they are */
};

/* True if a node with `slots` workers can have this list: names differ and are not empty, each role
 * has a worker, and together the roles have all workers. */
bool ct_role_list_is_sound(const struct ct_role_list *roles, uint32_t slots);
/* `sole` is the role where the list is empty; local_rank is below the sum of the slots; `start`
 * answers a JOIN with that list. */
void ct_role_find(struct ct_role_at *out, const struct ct_role_list *roles,
                  const char *sole, const struct ct_start *start, uint32_t local_rank);
