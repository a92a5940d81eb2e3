/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a failure of this node to the server, and stops the other workers of this node. */
#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"

static void send_samples(struct agent *agent)
{
    struct ct_samples samples;

    if (worker_group_get_samples(agent->group, &agent->failure, &samples))
        link_send(agent->link,
                  &(struct ct_message){CT_MESSAGE_SAMPLES, .samples = &samples});
}

void agent_send_failure(struct agent *agent)
{
    struct ct_failure failure = agent->failure; /* a copy: gets the age of now */
    const struct ct_message message = {CT_MESSAGE_FAILURE, .failure = &failure};

    send_samples(agent);
    worker_group_set_age(&failure);
    link_send(agent->link, &message);
}

void agent_add_unreachable(const struct agent *agent, struct ct_failure *failure)
{
    if (*agent->unreachable &&
        (failure->cause == CT_CAUSE_HANG || ct_failure_is_victim(failure)))
        facts_add(failure, CT_FACT_SO, "%s when this round began", agent->unreachable);
}

void agent_report_failure(struct agent *agent, const struct ct_failure *failure)
{
    agent->failure = *failure;
    agent_save_calls(agent);
    agent_add_calls(agent, &agent->failure);
    agent_add_unreachable(agent, &agent->failure);
    agent_send_failure(agent);
    if (agent->drained_by != 0)
        agent_drained(agent);
    else if (agent->state == AGENT_RUNNING) /* the link may have failed just now */
        agent_stop_survivors(agent, AFTER_REJOIN, agent->options->survivor_grace_ms,
                             agent->options->grace_ms, "a worker failed");
}

void agent_send_raised(struct agent *agent)
{
    const struct ct_failure *raised = worker_group_find_raised(agent->group,
                                                               UINT64_MAX);

    if (raised)
        agent_report_failure(agent, raised);
}
