/* SPDX-License-Identifier: Apache-2.0 */
/* After a broken connection was made again: sends who this node is, and every message that may be
 * lost. A message that arrives twice counts once. */
#include "agent/node/agent_private.h"

uint8_t agent_get_resume_state(void *context)
{
    const struct agent *agent = context;

    switch (agent->state) {
    case AGENT_JOINING: return CT_RESUME_JOINING;
    case AGENT_RUNNING: return CT_RESUME_RUNNING;
    case AGENT_STOPPING: return agent->is_gone ? CT_RESUME_STOPPED : CT_RESUME_STOPPING;
    case AGENT_SUCCEEDED: return CT_RESUME_SUCCEEDED;
    case AGENT_CONNECTING:
    case AGENT_ENDED: break;
    }
    return 0;
}

/* In the original order: after STOPPED the server expects nothing more of this round from this node. If the held
 * checkpoints reached the disk while the link was broken, nothing else leads to the next JOIN. */
static void send_again(struct agent *agent)
{
    if (agent->failure.cause != CT_CAUSE_NONE &&
        agent->failure.generation == agent->start.generation)
        agent_send_failure(agent);
    if (agent->leave_reason[0])
        agent_send_leave(agent, agent->leave_reason);
    if (agent->stop.reason != 0)
        agent_send_stopping(agent);
    if (agent->is_gone)
        agent_send_stopped(agent);
    if (agent->joins_later)
        agent_join(agent);
}

/* The server sends the START of a later round again by itself. */
static void join_again(struct agent *agent, const struct ct_resumed *resumed)
{
    if (resumed->generation > agent->start.generation)
        return;
    if (resumed->is_in_world)
        agent_send_stopped(agent);
    agent_send_join(agent);
}

/* Sends again what may be lost. `resumed` has what the server knows of this node. */
void agent_send_again(struct agent *agent, const struct ct_resumed *resumed)
{
    worker_group_renew_metrics(agent->group); /* the next look sends them */
    switch (agent->state) {
    case AGENT_JOINING: join_again(agent, resumed); break;
    case AGENT_STOPPING: send_again(agent); break;
    case AGENT_SUCCEEDED: agent_send_succeeded(agent); break;
    case AGENT_RUNNING:
        agent_send_reachability(agent);
        agent_send_survival_again(agent);
        agent_start_slow_node(agent);
        break;
    case AGENT_CONNECTING:
    case AGENT_ENDED: break;
    }
}
