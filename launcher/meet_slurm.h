/* SPDX-License-Identifier: Apache-2.0 */
/* `srun ctrun ... PROGRAM`: who, where and in which order, from Slurm's environment alone.
 *
 * Inside a step of one task per node, and as long as the user says nothing about it, the
 * number of nodes is the step's, our place is SLURM_NODEID, the run id is the job's, and the
 * first node serves at a port that all nodes derive from job and step. An explicit endpoint,
 * backend, master address or --standalone wins over all of that. */
#ifndef LAUNCHER_MEET_SLURM_H
#define LAUNCHER_MEET_SLURM_H

#include "launcher/config.h"

/* Returns 1 when Slurm decides how to meet and `config` is filled: backend, nodes, node_rank,
 * endpoint, is_host, run_id; 0 when it does not. CTRUN_E_USAGE: the step cannot be used as it
 * was asked for; CTRUN_E_BAD_ENVIRONMENT. */
int meet_slurm_resolve(struct config *config, const struct options *options,
                       struct ctrun_error *err);

#endif
