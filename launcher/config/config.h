/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment, resolved: what this node will do, except for decisions that
 * depend on the network. Opens and starts nothing. */
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

/* 0, or the code of a refusal: -EINVAL (exit 1), CTRUN_E_USAGE (exit 2), CTRUN_E_EXEC (127),
 * -ENOEXEC (126). Logs warnings about settings that have no effect. `out` is all zero before, and
 * may be deinit'ed in any case. */
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
/* The program that the worker executes. */
const struct program *config_program(const struct config *config, int local_rank);
/* gloo_scale_is_known() for all programs of this node. */
bool config_knows_gloo_scale(const struct config *config);
/* program_hash() of all that the workers of this node execute; 0: not known. */
uint64_t config_program_hash(const struct config *config);
/* --warm: the first program of this node that a template can become; NULL: there is none. */
const struct program *config_warm_program(const struct config *config);
/* The number of workers of this node's largest role. */
int config_widest_role(const struct config *config);
const char *config_backend_name(enum config_backend backend);
