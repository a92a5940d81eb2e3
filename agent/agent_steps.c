/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that workers tell on their socket. */
#include <errno.h>

#include "agent/agent_private.h"

static void on_hello(void *context, int rank, uint64_t generation)
{
    struct agent *agent = context;

    worker_group_set_hello(agent->group, rank, generation);
    agent_bill_look(agent);
}

/* The steps that a worker tells next may come without a message: we look once more. */
static void on_progress(void *context, int rank, uint64_t generation,
                        const struct worker_socket_progress *progress)
{
    struct agent *agent = context;

    worker_group_set_progress(agent->group, rank, generation, progress);
    link_set_progress(agent->link, agent->start.generation,
                      worker_group_min_step(agent->group));
    if (!agent->is_refreshing)
        loop_timer_set(agent->step_timer, AGENT_STEP_LOOK_MS);
    agent_bill_look(agent);
}

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

int agent_open_worker_socket(struct agent *agent, struct ctrun_error *err)
{
    const struct worker_socket_options options = {
        .loop = agent->loop,
        .run_id = agent->options->hello.run_id,
        .context = agent,
        .on_hello = on_hello,
        .on_progress = on_progress,
    };

    agent->step_timer = loop_timer_open(agent->loop, on_step_timer, agent);
    if (!agent->step_timer)
        return ct_fail(err, -ENOMEM, "worker socket: out of memory");

    return worker_socket_open(&agent->worker_socket, &options, err);
}
