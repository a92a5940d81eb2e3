/* SPDX-License-Identifier: Apache-2.0 */
/* Notices about the end of the allocation: at the start, and when the end is near. All nodes of a
 * job have the same end, so only one node prints. */
#pragma once

#include "agent/agent.h"
#include "launcher/config/config.h"

/* 0, or CTRUN_E_USAGE: so little time is left that --stop-before-end would stop the run at once. */
int notice_end_check(const struct config *config, struct ctrun_error *err);
/* Warns that little time is left, or that --stop-before-end is given and the end is not known. */
void notice_end_beginning(const struct config *config);
void notice_end_near(const struct config *config, const struct agent_ending *ending);
