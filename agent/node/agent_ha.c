/* SPDX-License-Identifier: Apache-2.0 */
/* This node in the run's own etcd (--ha): what the launcher has to report goes to the server, the
 * server's plan to the launcher; and from when on etcd tells where the rendezvous is. */
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

/* Whatever it sends is lost when the link is not up. */
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
        own == instance) /* else who founds another has welcomed this spare */
        link_send(agent->link,
                  &(struct ct_message){CT_MESSAGE_HA_REPORT, .ha_report = &report});
}

/* The run has moved into an etcd; who founds it anew beside that does not know it yet. */
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
        agent); /* one that is not let in has reported nothing of this node yet */
    agent->options->ha.on_plan(agent->options->context, plan);
}

/* The launcher has something new. */
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
