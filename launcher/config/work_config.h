/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker is: its program, and its share of the machine. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "launcher/config/placement.h"
#include "launcher/config/program.h"
#include "launcher/config/run_config.h"
#include "launcher/config/warm_config.h"
#include "launcher/hardware/nic_hints.h"

struct work_config {
    struct program program; /* of several roles, the first one's, with their names */
    /* code 0: all programs were found. Else this node joins the run, and its workers fail to start with this
     * error, so that the other nodes end for this reason too: config_resolve() */
    struct ctrun_error no_program;
    bool virtual_local_rank;
    struct placement placement;
    struct nic_hints nics; /* found when they are shown or used */
    struct warm_config warm;
    bool has_jax;   /* workers get JAX's variables: jax_env.h */
    bool lacks_jax; /* workers do not get them, though the program looks for them */
    char timer_file[PATH_MAX]; /* named pipe of the file timer; empty: none */
};

/* Resolves all but the program, and sets run->task.place. 0 or a code, as config_resolve(). */
int work_config_resolve(struct work_config *out, const struct options *options,
                        char *const *env, struct run_config *run,
                        struct ctrun_error *err);
void work_config_deinit(struct work_config *config);
