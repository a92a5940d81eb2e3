/* SPDX-License-Identifier: Apache-2.0 */
/* One node's part of a run, from a resolved configuration to an exit code: hosts the
 * rendezvous when it is ours, runs the agent, tells how it ended. Runs inside the
 * guard's child. */
#pragma once

#include "launcher/config/config.h"

/* Blocks until the run is over for this node. Returns the exit code; has said why. What tasks of
 * srun tell each other first comes into `config`. */
int launch_run(struct config *config);
