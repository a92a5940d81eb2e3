/* SPDX-License-Identifier: Apache-2.0 */
/* --restart-delay: the pause between a failure and this node's next JOIN. The server waits for it as for any
 * other node that is not there yet. */
#include <errno.h>
#include <sys/random.h>

#include "agent/node/agent_private.h"

/* A round that was stopped for a new node, or on request, has not failed. */
static bool has_failed(const struct ct_stop *stop)
{
    return stop->reason == CT_STOP_FAILURE || stop->reason == CT_STOP_NODE_LOST ||
           stop->reason == CT_STOP_UNDECIDED;
}

/* Each node chooses its own delay, with jitter: the round begins when the last node has joined. */
static uint64_t choose_delay(struct agent *agent)
{
    const struct restart_delay_options *options = &agent->options->restart_delay;
    uint64_t random = 0;

    if (options->first_ms == 0 || agent->drained_by != 0 || !has_failed(&agent->stop))
        return 0;
    (void)!getrandom(&random, sizeof random,
                     GRND_NONBLOCK); /* early in boot: no jitter */
    return restart_delay_next(&agent->delay, options, agent_last_step(agent),
                              ct_now_ms() - agent->round_ms, random);
}

static void report(const struct agent *agent, uint64_t delay_ms)
{
    const struct agent_options *options = agent->options;

    ct_event_emit("restart_delayed", CT_INT("generation", agent->start.generation),
                  CT_INT("delay_ms", delay_ms),
                  CT_INT("failures", agent->delay.failures));
    if (options->on_delay)
        options->on_delay(options->context, delay_ms, agent->delay.failures);
}

void agent_join_later(struct agent *agent)
{
    const uint64_t delay_ms = choose_delay(agent);

    if (delay_ms == 0) {
        agent_join_when_free(agent);
        return;
    }
    report(agent, delay_ms);
    loop_timer_set(agent->delay_timer, delay_ms);
}

/* Unless a signal, the verdict or another server has ended the pause. */
static void on_delay_timer(void *context)
{
    struct agent *agent = context;

    if (agent->state == AGENT_STOPPING && agent->is_gone && !agent->stop.is_final)
        agent_join_when_free(agent);
}

int agent_open_delay(struct agent *agent, struct ctrun_error *err)
{
    agent->delay.best_step = -1;
    if (agent->options->restart_delay.first_ms == 0)
        return 0;
    agent->delay_timer = loop_timer_open(agent->loop, on_delay_timer, agent);
    return agent->delay_timer ? 0 : ct_fail(err, -ENOMEM, "agent: out of memory");
}
