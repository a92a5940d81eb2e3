/* SPDX-License-Identifier: Apache-2.0 */
/* --jax: what jax.distributed.initialize() without arguments reads. JAX knows no torchrun; it takes its place
 * from Slurm's variables, which are those of our task, not of one of its workers: with them each worker is
 * process 0 of 1, without them there is no world at all. Each worker gets a view of its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/env.h"

struct jax_place {
    uint64_t rank;
    uint64_t world_size;
    uint64_t local_rank;
    uint64_t nodes;
    const char *coordinator; /* host of rank 0 */
    uint16_t port;           /* that rank 0 serves at */
};

/* Sets the variables; those of Open MPI, which some versions look at first, go. 0 or -ENOMEM. */
int jax_env_set(struct ct_env *env, const struct jax_place *place);
/* Removes what jax_env_set() has set and what differs from worker to worker. */
void jax_env_remove(struct ct_env *env);
