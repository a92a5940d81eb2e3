/* SPDX-License-Identifier: Apache-2.0 */
/* --jax: what jax.distributed.initialize() without arguments reads. JAX does not know
 * torchrun; it takes its place from Slurm's variables, which describe our task, not one of its
 * workers: with them each worker would be process 0 of 1, without them there would be no world. So
 * each worker gets variables of its own. */
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
    uint16_t port;           /* at which rank 0 serves */
};

/* Sets the variables, and removes those of Open MPI, which some versions of JAX read first. 0 or
 * -ENOMEM. */
int jax_env_set(struct ct_env *env, const struct jax_place *place);
/* Removes what jax_env_set() has set and what differs from worker to worker. */
void jax_env_remove(struct ct_env *env);
