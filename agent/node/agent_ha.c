/* SPDX-License-Identifier: Apache-2.0 */
/* This node's part in the run's own etcd (--ha): sends the launcher's report to the server, and the
 * server's plan to the launcher; tells from when on etcd knows the rendezvous server. */
#include <errno.h>
#include <unistd.h>

#include "agent/node/agent_private.h"

size_t agent_find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct agent *agent = context;

    return agent->options->find_servers(agent->options->context, out, max);
}

bool agent_may_find(const struct agent *agent)
{
    return agent->options->find_servers && (!agent->options->ha.nodes || agent->finds);
}

/* A message is lost if the link is not up. */
void agent_report_ha(struct agent *agent)
{
    const struct agent_ha *ha = &agent->options->ha;
    struct ct_ha_report report = {0};
    struct ct_addr local, remote;
    uint64_t generation;
    const uint64_t instance = link_instance(agent->link, &generation);
    const uint64_t own = agent->ha_instance ? agent->ha_instance : instance;

    if (!ha->nodes || !link_get_ends(agent->link, &local, &remote))
        return;
    if (ha->fill_report(agent->options->context, &local, own, generation, &report) &&
        own == instance) /* else another founder has welcomed this spare */
        link_send(agent->link,
                  &(struct ct_message){CT_MESSAGE_HA_REPORT, .ha_report = &report});
}

/* The run has moved into an etcd; a node that founds the run anew beside it does not know that
 * yet. */
static bool is_of_another(const struct agent *agent, const struct ct_ha_plan *plan)
{
    return agent->ha_plan.phase == CT_HA_ACTIVE && agent->ha_plan.epoch != plan->epoch;
}

void agent_on_ha_plan(struct agent *agent, const struct ct_ha_plan *plan)
{
    uint64_t generation;

    if (!agent->options->ha.nodes)
        return;
    if (is_of_another(agent, plan))
        return;
    agent->ha_plan = *plan;
    if (plan->phase == CT_HA_ACTIVE && link_is_up(agent->link))
        agent->ha_instance = link_instance(agent->link, &generation);
    agent_report_ha(
        agent); /* a node that was not admitted has reported nothing of itself yet */
    agent->options->ha.on_plan(agent->options->context, plan);
}

/* The launcher has a new report. */
static void on_wake(void *context, unsigned events)
{
    struct agent *agent = context;
    const struct agent_ha *ha = &agent->options->ha;
    uint64_t count;

    (void)events;
    if (read(loop_watch_fd(agent->ha_wake), &count, sizeof count) < 0)
        return;
    if (!agent->finds && ha->finds(agent->options->context)) {
        agent->finds = true;
        link_find_servers(agent->link, agent_find_servers);
    }
    agent_report_ha(agent);
}

int agent_open_ha(struct agent *agent, struct ctrun_error *err)
{
    const struct agent_ha *ha = &agent->options->ha;

    if (!ha->nodes)
        return 0;
    agent->ha_wake = loop_watch_open(agent->loop, dup(ha->wake_fd), on_wake, agent);
    if (!agent->ha_wake)
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    loop_watch_for(agent->ha_wake, LOOP_READ);
    return 0;
}

void agent_close_ha(struct agent *agent)
{
    loop_watch_close(agent->ha_wake);
}
