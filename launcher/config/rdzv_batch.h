/* SPDX-License-Identifier: Apache-2.0 */
/* `srun ctrun ... PROGRAM`: the nodes, their order and the endpoint, from a batch system's facts
 * alone.
 *
 * Unless the user configures the rendezvous, the number of nodes, our place among them and the
 * run id are the batch system's, and the first node serves at a port that all nodes derive from
 * the job. An explicit endpoint, backend, master address or --standalone wins over all of that.
 * So does a run that we are inside of: its workers are in the same step and would not join. */
#pragma once

#include "launcher/batch/batch.h"
#include "launcher/config/rdzv_target.h"

/* Returns 1 when a batch system decides the rendezvous and `to` is filled: backend, nodes,
 * node_rank, endpoint, is_host, run_id, batch, task; 0 when it does not. CTRUN_E_USAGE: its
 * tasks cannot be used as was asked for; CTRUN_E_BAD_ENVIRONMENT. */
int rdzv_batch_resolve(const struct rdzv_target *to, const struct options *options,
                       struct ctrun_error *err);
/* True when the options configure the rendezvous: no batch system is asked. */
bool rdzv_batch_is_given(const struct options *options);
