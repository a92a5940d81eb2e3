/* SPDX-License-Identifier: Apache-2.0 */
/* A link that is lost, and the way back. The workers have ended by then, so that this node comes
 * back as a new one.
 *
 *     RUNNING ──link lost──> STOPPING ──no worker left──> CONNECTING ──welcome──> JOINING
 *                                                             └──time is up──> ENDED
 *
 * A server whose host refuses connections is gone: a restarted one has a few seconds to come
 * back. One that is only silent may be behind a cable that somebody plugs in again. */
#include <signal.h>
#include <string.h>

#include "agent/agent_private.h"

uint64_t agent_return_ms(const struct agent *agent)
{
    const uint64_t tried_ms = link_tried_ms(agent->link); /* to resume, maybe */
    uint64_t limit_ms = LINK_RETURN_MS;

    if (!agent->is_silently_lost)
        limit_ms = tried_ms + LINK_RECONNECT_MIN_MS < LINK_RECONNECT_MS
                       ? LINK_RECONNECT_MS - tried_ms
                       : LINK_RECONNECT_MIN_MS;

    return agent->options->connect_timeout_ms < limit_ms
               ? agent->options->connect_timeout_ms
               : limit_ms;
}

/* The server takes a broken link for a lost node and will start a world without us: ours must
 * have ended before. */
void agent_fence(struct agent *agent, const struct ctrun_error *why)
{
    const uint64_t limit_ms = agent->lost_after_ms / 10;
    const uint64_t grace_ms = agent->options->grace_ms;

    agent->result->error = *why;
    if (agent->options->on_lost)
        agent->options->on_lost(agent->options->context, why, agent_return_ms(agent));
    agent_stop(agent, AFTER_RETURN, SIGTERM, grace_ms < limit_ms ? grace_ms : limit_ms,
               why->text);
}

void agent_return(struct agent *agent)
{
    struct ctrun_error *error = &agent->result->error;

    if (agent_may_follow(agent)) {
        agent_follow(agent);
        return;
    }
    agent_close_store(agent);
    agent_set_state(agent, AGENT_CONNECTING, error->text);
    link_connect(agent->link, agent_return_ms(agent));
}

/* As a new node, of a run that counts its generations anew when its server does. */
void agent_has_returned(struct agent *agent)
{
    agent_has_found(agent);
    if (agent->start.generation == 0)
        return;
    agent->start.generation = 0;
    memset(&agent->stop, 0, sizeof agent->stop);
    memset(&agent->result->error, 0, sizeof agent->result->error);
    if (agent->options->on_returned && !agent->followed)
        agent->options->on_returned(agent->options->context);
}
