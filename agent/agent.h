/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent: meets the other nodes, runs this node's workers round after round, and
 * reports how they ended. One libuv loop on the calling thread; the agent never polls.
 *
 *     CONNECTING ──welcome──> JOINING ──start──> RUNNING ──all exited 0──> SUCCEEDED ──┐
 *          ▲                     ▲                  │ stop, failure, signal            │ verdict
 *          └──link lost (retry)  └──── gone ── STOPPING <──────────────────────────────┤
 *                                                   └── final ──> ENDED <──────────────┘
 *
 * The agent does not read command lines: launcher/ fills in what to run,
 * how to build one worker's environment, and where a worker store comes from. */
#pragma once

#include "agent/node/agent_options.h"

/* Blocks until the run is over for this node. `result` is zeroed by the caller. Returns 0 when
 * *result says how the run ended (a failed run is a result, not an error), or a code when the agent
 * could not start. */
int agent_run(const struct agent_options *options, struct agent_result *result,
              struct ctrun_error *err);
