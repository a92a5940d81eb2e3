/* SPDX-License-Identifier: Apache-2.0 */
/* Where a host that dies is replaced (find_servers), its end is not the run's: the agent ends its
 * workers in time, as always, and looks for the next host, where it resumes its membership. One
 * that does not know it takes it as a new node. */
#include <signal.h>

#include "agent/agent_private.h"

/* The next host starts no world before our lease is over: the workers must have ended by then. */
static void end_workers(struct agent *agent, const struct ctrun_error *why,
                        uint64_t looked_for_ms)
{
    const uint64_t limit_ms = agent->lost_after_ms / 10;
    const uint64_t grace_ms = agent->options->grace_ms;

    if (agent->options->on_lost)
        agent->options->on_lost(agent->options->context, why, looked_for_ms);
    agent_stop(agent, AFTER_REJOIN, SIGTERM, grace_ms < limit_ms ? grace_ms : limit_ms,
               why->text);
}

/* All attempts since the last connection have this long together. */
static uint64_t get_left_ms(struct agent *agent)
{
    if (agent->seek_deadline_ms == 0)
        agent->seek_deadline_ms = ct_deadline_ms(agent->options->connect_timeout_ms);
    return (uint64_t)ct_left_ms(agent->seek_deadline_ms);
}

static bool may_seek(const struct agent *agent, const struct ctrun_error *why)
{
    if (!agent->options->find_servers || why->code != CTRUN_E_LEADER_LOST)
        return false;
    return agent->state == AGENT_JOINING || agent->state == AGENT_RUNNING ||
           agent->state == AGENT_SUCCEEDED ||
           (agent->state == AGENT_STOPPING && agent->after < AFTER_END);
}

bool agent_seek_host(struct agent *agent, const struct ctrun_error *why)
{
    uint64_t left_ms;

    if (!may_seek(agent, why) || (left_ms = get_left_ms(agent)) == 0)
        return false;
    ct_info("looking for another host: %s", why->text);
    if (agent->state == AGENT_RUNNING ||
        (agent->state == AGENT_STOPPING && !agent->is_gone &&
         agent->after == AFTER_REJOIN))
        end_workers(agent, why, left_ms);
    link_seek(agent->link, left_ms);
    return true;
}

/* Unless its workers are still being ended: then on_gone comes here again. */
void agent_take_host(struct agent *agent)
{
    agent->seek_deadline_ms = 0;
    agent->joins_when_gone = agent->state == AGENT_STOPPING && !agent->is_gone;
    if (agent->joins_when_gone)
        return;
    if (agent->state ==
        AGENT_SUCCEEDED) /* the others' workers run again, and so do ours */
        agent_set_state(agent, AGENT_STOPPING, "the next host does not know our end");
    agent_has_returned(agent);
    link_set_progress(agent->link, 0, -1);
    agent_join(agent);
}
