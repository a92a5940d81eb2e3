/* SPDX-License-Identifier: Apache-2.0 */
/* One worker's argv, environment and files, from the configuration and the round's
 * ranks, as torchrun sets them. Makes the worker's log directory; changes nothing
 * else. */
#pragma once

#include "agent/worker/plan.h"
#include "launcher/config/config.h"
#include "launcher/run/logdir.h"

/* dir NULL: no files, only the console. 0 or a code; `out` may be deinit'ed
 * (agent_worker_plan_deinit) in any case. */
int plan_worker(struct agent_worker_plan *out, const struct config *config,
                struct logdir *dir, const struct ct_start *start, int local_rank,
                struct ctrun_error *err);

/* Only the environment: the launcher's own with the worker's variables. error_file may be NULL. */
int plan_environment(struct ct_env *out, const struct config *config,
                     const struct ct_start *start, int local_rank,
                     const char *error_file);
/* The environment of the template of --warm: only what all workers have in common. */
int plan_template_environment(struct ct_env *out, const struct config *config);
/* The prefix of lines of these ranks, given as lists ("0-3,6"); is_teed: the prefix of --tee. The
 * caller frees it; NULL when memory is short. */
char *plan_ranks_prefix(const struct config *config, const char *local_ranks,
                        const char *ranks, bool is_teed);
/* argv alone, NULL-terminated, owned by the caller; NULL when memory is short. */
char **plan_argv(const struct config *config, int local_rank);
