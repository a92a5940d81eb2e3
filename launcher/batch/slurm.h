/* SPDX-License-Identifier: Apache-2.0 */
/* This node's place in a job of Slurm.
 *
 * Inside a step (srun) the step's variables count, not the job's: `srun -N2` in a job of three
 * nodes is a run of two. A batch script or salloc's shell is no step: SLURM_STEP_ID is not set or
 * has a reserved number, and ctrun there is an ordinary process on one node. */
#pragma once

#include "launcher/batch/batch.h"

/* As batch_find(), for a step of Slurm alone. */
int slurm_read(struct batch_place *out, const struct batch_source *from,
               struct ctrun_error *err);

/* Slurm's per-node lists, "8,3,1(x6)", as `count` numbers. -EINVAL when it is malformed or has
 * fewer. */
int slurm_per_node(const char *text, int *out, size_t count);

/* KillWait of slurm.conf's text in seconds, Slurm's default of 30 when it is not there. */
uint32_t slurm_kill_wait(const char *conf);

/* How many nodes the job has, where this is its batch script or a shell of salloc and no step of
 * srun; 0: anywhere else. */
int slurm_nodes_without_step(const struct batch_source *from);

/* Valid in a batch script as well: seconds between Slurm's SIGTERM and its SIGKILL (0: not in
 * a job, or its configuration cannot be read), and when the job's time is over (0: not known). */
uint32_t slurm_grace(const struct batch_source *from);
int64_t slurm_end(const struct batch_source *from);
