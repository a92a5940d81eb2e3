/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that workers report on their socket, and the metrics that the rendezvous server shows. */
#include <errno.h>

#include "agent/node/agent_private.h"

/* The peer sends rank and generation; the group ignores those of another round. */
static void on_hello(void *context, int rank, uint64_t generation)
{
    struct agent *agent = context;

    worker_group_set_hello(agent->group, rank, generation);
    agent_bill_look(agent);
}

/* The worker's next steps may come without a message: look at its page again later. */
static void on_progress(void *context, int rank, uint64_t generation,
                        const struct worker_socket_progress *progress)
{
    struct agent *agent = context;

    worker_group_set_progress(agent->group, rank, generation, progress);
    if (progress->metric_count > 0 && !agent->sends_metrics) {
        agent->sends_metrics = true;
        loop_timer_set(agent->metrics_timer, AGENT_STEP_LOOK_MS);
    }
    link_set_progress(agent->link, agent->start.generation,
                      worker_group_min_step(agent->group));
    if (!agent->is_refreshing)
        loop_timer_set(agent->step_timer, AGENT_STEP_LOOK_MS);
    agent_bill_look(agent);
}

/* worker_socket_refresh() calls on_progress() for each worker; is_refreshing keeps it from planning another look. */
void agent_refresh_steps(struct agent *agent)
{
    agent->is_refreshing = true;
    worker_socket_refresh(agent->worker_socket);
    agent->is_refreshing = false;
}

static void on_step_timer(void *context)
{
    agent_refresh_steps(context);
}

/* A worker that reports no steps is read only here. Metrics that the link does not take now are
 * sent later. */
static void on_metrics_timer(void *context)
{
    struct agent *agent = context;
    const struct ct_message message = {CT_MESSAGE_METRICS, .metrics = &agent->metrics};

    agent->sends_metrics = agent->state == AGENT_RUNNING ||
                           agent->state == AGENT_STOPPING ||
                           agent->state == AGENT_SUCCEEDED;
    if (!agent->sends_metrics)
        return;
    agent_refresh_steps(agent);
    for (int i = 0; i < AGENT_METRICS_MESSAGES && link_is_up(agent->link) &&
                    worker_group_take_metrics(agent->group, &agent->metrics);
         i++)
        link_send(agent->link, &message);
    loop_timer_set(agent->metrics_timer, AGENT_METRICS_MS);
}

int agent_open_worker_socket(struct agent *agent, struct ctrun_error *err)
{
    const struct worker_socket_options options = {
        .loop = agent->loop,
        .run_id = agent->options->hello.run_id,
        .hold = agent->hold,
        .context = agent,
        .on_hello = on_hello,
        .on_progress = on_progress,
        .on_ask = agent_on_ask,
    };

    agent->step_timer = loop_timer_open(agent->loop, on_step_timer, agent);
    agent->metrics_timer = loop_timer_open(agent->loop, on_metrics_timer, agent);
    if (!agent->step_timer || !agent->metrics_timer)
        return ct_fail(err, -ENOMEM, "worker socket: out of memory");

    return worker_socket_open(&agent->worker_socket, &options, err);
}
