/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process is in a step of srun. */
#pragma once

#include <stdbool.h>

/* `id`: the value of SLURM_STEP_ID; NULL or empty: it is not set. False for the steps that Slurm makes for a batch script and for
 * the shell of salloc: srun has started no task there. True for a value that is no number. */
bool slurm_step_is_of_srun(const char *id);
