/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment, resolved: what this node will do, with nothing left to
 * decide but what the network answers. Opens and starts nothing. */
#pragma once

#include "launcher/config/rdzv_settings.h"
#include "launcher/config/output_config.h"
#include "launcher/config/run_config.h"
#include "launcher/config/stop_config.h"
#include "launcher/config/work_config.h"

/* Each is resolved from the options, the environment and those above it. */
struct config {
    char *const *env; /* the launcher's environment, borrowed */
    struct run_config run;
    struct rdzv_settings rdzv;
    struct stop_config stop;
    struct output_config output;
    struct work_config work;
};

/* 0, or the code of a refusal: -EINVAL (exit 1), CTRUN_E_USAGE (exit 2), CTRUN_E_EXEC
 * (127). Logs warnings about what was given and has no effect. `out` may be deinit'ed
 * in any case. */
int config_resolve(struct config *out, const struct options *options, char *const *env,
                   struct ctrun_error *err);
void config_deinit(struct config *config);

/* Seconds that the batch system leaves us, 0 when none or unknown. */
int64_t config_time_left(const struct config *config);
/* The role of a worker in a round. */
void config_role_at(struct ct_role_at *out, const struct config *config,
                    const struct ct_start *start, int local_rank);
/* How often a worker of its role may be started again alone; 0: never. */
uint32_t config_role_restarts(const struct config *config, int local_rank);
/* What it executes. */
const struct program *config_program(const struct config *config, int local_rank);
/* Of what all workers of this node execute; 0: not known. */
/* See gloo_scale.h; of several programs, all. */
bool config_knows_gloo_scale(const struct config *config);
uint64_t config_program_hash(const struct config *config);
/* --warm: the first program of this node that a template can become; NULL: there is none. */
const struct program *config_warm_program(const struct config *config);
/* The workers of the role that has most of them. */
int config_widest_role(const struct config *config);
const char *config_backend_name(enum config_backend backend);
