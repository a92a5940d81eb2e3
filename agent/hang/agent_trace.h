/* SPDX-License-Identifier: Apache-2.0 */
/* At a hang: the calls in the answers of torch's flight recorders of this node as one trace for Chrome and
 * Perfetto, flight_recorder.nodeN.json, beside the folders of the workers. */
#pragma once

#include "agent/node/agent_private.h"
#include "agent/watch/stacks.h"

struct agent_trace;

/* Copies the answers. NULL: there is none, or nowhere to write. */
struct agent_trace *agent_take_trace(const struct agent *agent,
                                     const struct stacks_target *targets, int count);
/* Ends `trace`; NULL is fine. A separate thread writes, and is waited for FLIGHT_WRITE_MS. */
void agent_save_trace(struct agent_trace *trace);
