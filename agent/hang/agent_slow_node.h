/* SPDX-License-Identifier: Apache-2.0 */
/* --stragglers: what agent_straggler.c gives to the comparison of the nodes. */
#pragma once

#include "agent/node/agent_private.h"
#include "agent/watch/rank_load.h"

/* What the ranks of this node have given, before it is taken; is_wall: by the wall clock. rates: by local rank. How
 * many calls go to the comparison. */
int agent_compare_nodes(struct agent *agent, const struct straggler *given,
                        bool is_wall, const struct rank_rates *rates);
int agent_open_slow_node(struct agent *agent, struct ctrun_error *err);
void agent_close_slow_node(struct agent *agent); /* not open is fine */
