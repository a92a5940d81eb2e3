/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear of the end of the allocation: at the start, and when it is near. All nodes of a
 * job have the same one: one of them speaks. */
#pragma once

#include "agent/agent.h"
#include "launcher/config/config.h"

/* 0, or CTRUN_E_USAGE: what is to be done before the end would have to be done at once. */
int notice_end_check(const struct config *config, struct ctrun_error *err);
/* That there is little time; that --stop-before-end has no end to go by. */
void notice_end_beginning(const struct config *config);
void notice_end_near(const struct config *config, const struct agent_ending *ending);
