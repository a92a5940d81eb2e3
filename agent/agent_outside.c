/* SPDX-License-Identifier: Apache-2.0 */
/* A node in the place of a lost node, before the other ranks have accepted one of its ranks: a
 * failure here ends only this node. */
#include <signal.h>

#include "agent/loop/limits.h"
#include "agent/node/agent_private.h"

void agent_stop_outside(struct agent *agent, const char *why)
{
    (void)ct_fail(&agent->result->error, CTRUN_E_CHANGED,
                  "the workers of this node, which was to replace a lost node, ended "
                  "before the other ranks accepted them: %s",
                  why);
    agent_stop(agent, AFTER_END, SIGTERM, AGENT_ORPHAN_MS, "its workers have ended");
}

bool agent_fails_outside(struct agent *agent, const struct ct_failure *failure)
{
    if (agent->state != AGENT_RUNNING || agent->drained_by != 0 ||
        !agent_is_outside(agent))
        return false;
    agent_stop_outside(agent,
                       *failure->text ? failure->text : ct_cause_name(failure->cause));
    return true;
}
