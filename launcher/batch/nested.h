/* SPDX-License-Identifier: Apache-2.0 */
/* A ctrun that a worker of another run has started: it ignores the variables that the run gave to
 * that worker (RANK, MASTER_ADDR, ...). It begins a world of its own and sets all of them anew for
 * its own workers. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    NESTED_TEXT_MAX = 512
};

/* True inside a worker whose launcher was started as the batch task `run_id`: the other tasks of
 * its step are busy with that run, and would never join. */
bool nested_is_in_task(char *const *env, const char *run_id);
/* "inherited RANK, WORLD_SIZE, ... ignored: this is inside rank 3 of run exp-7, and a run of its
 * own"; empty when it is not. Returns dst. */
char *nested_format(char *dst, size_t size, char *const *env);
