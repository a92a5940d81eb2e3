/* SPDX-License-Identifier: Apache-2.0 */
/* One node's part of a run, from a resolved configuration to an exit code: serves the
 * rendezvous if this node has to, runs the agent, reports how the run ended. Runs in the
 * guard's child. */
#pragma once

#include "launcher/config/config.h"

/* Blocks until the run is over for this node. Prints the reason and returns the exit code. Puts
 * into `config` what the tasks of srun have exchanged through PMI. */
int launch_run(struct config *config);
