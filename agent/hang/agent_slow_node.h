/* SPDX-License-Identifier: Apache-2.0 */
/* --stragglers: the interface between agent_straggler.c and the comparison of nodes. */
#pragma once

#include "agent/node/agent_private.h"
#include "agent/watch/rank_load.h"

/* The calls that the ranks of this node have given, before agent_straggler.c takes them; is_wall:
 * their times are of the wall clock. rates: by local rank. Returns how many calls go to the
 * comparison. */
int agent_compare_nodes(struct agent *agent, const struct straggler *given,
                        bool is_wall, const struct rank_rates *rates);
int agent_open_slow_node(struct agent *agent, struct ctrun_error *err);
void agent_close_slow_node(struct agent *agent); /* not open is fine */
