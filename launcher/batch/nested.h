/* SPDX-License-Identifier: Apache-2.0 */
/* A ctrun that a worker of another run has started: what that run gave to its worker (RANK,
 * MASTER_ADDR, ...) is none of its business. It begins a world of its own; its own workers get
 * every one of these names anew. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    NESTED_TEXT_MAX = 512
};

/* True inside a worker whose launcher was started as the batch task `run_id`: the others of its
 * step are busy with that run, and would never join. */
bool nested_is_in_task(char *const *env, const char *run_id);
/* "inherited RANK, WORLD_SIZE, ... ignored: this is inside rank 3 of run exp-7, and a run of its
 * own"; empty when it is not. Returns dst. */
char *nested_format(char *dst, size_t size, char *const *env);
