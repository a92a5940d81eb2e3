/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the tasks of `srun --mpi=pmi2 ctrun ...` find each other through srun's PMI: the serving
 * task chooses a free port and publishes its addresses, in place of a node name that
 * has to resolve and a port that all derive from the job and that another program may use.
 *
 * A PMI's fence waits for all tasks of the step. So PMI is used only where the run waits for all
 * tasks in any case, and every task enters the fence, also the tasks that sleep beside their node's
 * agent.
 *
 * A task has one PMI. Where the task is one rank (srun -n8 ctrun ./program), PMI belongs to the
 * program, which may be MPI; --bootstrap=pmi takes it even there. */
#pragma once

#include "launcher/batch/batch.h"
#include "launcher/config/rdzv_target.h"

/* Fills `out`: is_used, or why_not (nothing outside of Slurm). Looks at the environment and at
 * PMI_FD, sends nothing. */
void rdzv_pmi_find(struct config_pmi *out, const struct options *options,
                   const struct batch_place *place, const struct nnodes *nodes,
                   const struct batch_source *from);
/* 0; CTRUN_E_USAGE when --bootstrap=pmi is not possible. */
int rdzv_pmi_check(const struct rdzv_target *to, const struct options *options,
                   struct ctrun_error *err);
/* Enters the fence for a task that leaves the run to its node's agent, and does not wait. Call it
 * only where rdzv_batch_is_given() is false. */
void rdzv_pmi_attend(const struct options *options, const struct batch_place *place,
                     const struct batch_source *from);
