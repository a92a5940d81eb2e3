/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/plan.h"

#include <stdlib.h>
#include <string.h>

/* All of it is owned. A zeroed or half-filled plan is fine, and so is a second call. */
void agent_worker_plan_deinit(struct agent_worker_plan *plan)
{
    for (char **arg = plan->argv; arg && *arg; arg++)
        free(*arg);
    free(plan->argv);
    ct_env_deinit(&plan->env);
    free(plan->out_file);
    free(plan->err_file);
    free(plan->error_file);
    free(plan->prefix);
    free(plan->filtered_out_file);
    free(plan->filtered_err_file);
    memset(plan, 0, sizeof *plan);
}
