/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/slurm_step.h"

#include "worker_sdk/base/str.h"

/* Slurm's own steps have the numbers from here to 2^32, unsigned or as an int. */
static const int64_t own_steps = 0xfffffff0;

bool slurm_step_is_of_srun(const char *id)
{
    int64_t step;

    return id && *id &&
           (ct_parse_i64(id, INT64_MIN, INT64_MAX, &step) < 0 ||
            (step >= 0 && step < own_steps));
}
