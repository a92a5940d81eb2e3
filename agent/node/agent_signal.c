/* SPDX-License-Identifier: Apache-2.0 */
/* Signals beyond this node: USR1 and USR2 to the whole run, and notices while the workers of an
 * ended run save. */
#include <errno.h>
#include <signal.h>

#include "agent/node/agent_private.h"

static bool is_spread(int signal)
{
    return signal == SIGUSR1 || signal == SIGUSR2;
}

static void deliver(struct agent *agent, int signal)
{
    agent->result->passed_signal = signal;
    worker_group_signal(agent->group, signal);
    ct_event_emit("signal_passed_on", CT_INT("signal", signal),
                  CT_INT("group_rank", agent->start.group_rank));
}

/* The count is sent along: a batch system signals all nodes, each of which informs the others, and
 * every worker must get the signal once. */
void agent_pass_on(struct agent *agent, int signal)
{
    struct ct_signal out = {.generation = agent->start.generation, .signal = signal};
    bool is_new = true;

    if (agent->options->keeps_signals || !is_spread(signal)) {
        deliver(agent, signal);
        return;
    }
    out.count = signal_once_get(&agent->once, signal, ct_now_ms(), &is_new);
    (void)ct_copy(out.host, sizeof out.host, agent->options->hello.host);
    if (is_new)
        deliver(agent, signal);
    if (agent->start.group_world_size > 1 && agent->state != AGENT_CONNECTING)
        link_send(agent->link, &(struct ct_message){CT_MESSAGE_SIGNAL, .signal = &out});
}

void agent_on_signal(struct agent *agent, const struct ct_signal *message)
{
    bool is_new;

    if (!is_spread(message->signal) || agent->options->keeps_signals ||
        message->generation != agent->start.generation)
        return;
    is_new = signal_once_receive(&agent->once, message->signal, message->count,
                                 ct_now_ms());
    ct_event_emit("signal_received", CT_INT("signal", message->signal),
                  CT_INT("count", message->count), CT_INT("is_new", is_new),
                  CT_STR("from", message->host));
    if (is_new)
        deliver(agent, message->signal);
}

/* ---- While the workers save ------------------------------------------------------------- */

static void on_countdown(void *context)
{
    struct agent *agent = context;
    const int left_ms = ct_left_ms(agent->grace_deadline_ms);

    if (agent->state != AGENT_STOPPING || agent->is_gone || left_ms == 0)
        return;
    agent->options->on_countdown(agent->options->context, (uint64_t)left_ms);
    loop_timer_set(agent->countdown, AGENT_COUNTDOWN_MS);
}

uint64_t agent_signal_grace_ms(const struct agent *agent)
{
    const struct agent_options *options = agent->options;

    return options->signal_grace_ms ? options->signal_grace_ms : options->grace_ms;
}

void agent_begin_countdown(struct agent *agent, uint64_t grace_ms)
{
    if (agent->state != AGENT_RUNNING)
        return; /* no worker has anything to save */
    agent->grace_deadline_ms = ct_deadline_ms(grace_ms);
    if (agent->options->on_countdown)
        loop_timer_set(agent->countdown, AGENT_COUNTDOWN_MS);
}

int agent_open_countdown(struct agent *agent, struct ctrun_error *err)
{
    agent->countdown = loop_timer_open(agent->loop, on_countdown, agent);
    return agent->countdown ? 0 : ct_fail(err, -ENOMEM, "agent: out of memory");
}
