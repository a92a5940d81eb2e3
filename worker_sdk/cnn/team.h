/* SPDX-License-Identifier: Apache-2.0 */
/* A team of threads that run one function together, many times a second.
 *
 * Members wait by spinning for some microseconds and then sleep: a training step hands over work a
 * dozen times within milliseconds, but a thread that spins for long takes the core from the rank
 * that it waits for. One thread calls run(); the calling thread is member 0. */
#pragma once

#include "worker_sdk/include/ctrun.h"

struct cnn_team; /* opaque */

/* Called once per member, index 0 to count - 1. */
typedef void cnn_team_fn(void *context, int index, int count);

/* Processors this process may run on, at least 1. */
int cnn_team_usable_cores(void);
/* count: 1 to 256. Starts count - 1 threads, all signals blocked in them. In the members, so also in
 * the caller from now on, numbers too small for full precision (denormals) are zero: the optimizer's
 * averages of weights without gradient shrink to them in some 800 steps, and then each step took more than twice
 * as long. */
int cnn_team_create(struct cnn_team **out, int count, struct ctrun_error *err);
/* Joins the threads. */
void cnn_team_destroy(struct cnn_team *team);
/* Returns when every member has returned from fn. */
void cnn_team_run(struct cnn_team *team, cnn_team_fn *fn, void *context);

/* The part [*first, *end) of n items that member index of count works on. */
void cnn_team_split(size_t n, int index, int count, size_t *first, size_t *end);
