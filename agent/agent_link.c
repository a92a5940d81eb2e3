/* SPDX-License-Identifier: Apache-2.0 */
/* What the server says, and what a link that breaks means in each state. */
#include <stdlib.h>

#include "agent/agent_private.h"

/* Nothing here compares clocks of two machines, but people who read logs do. */
static void compare_clocks(struct agent *agent, uint64_t theirs_ns)
{
    const int64_t seconds = ((int64_t)ct_wall_ns() - (int64_t)theirs_ns) / 1000000000;

    if (theirs_ns == 0 || agent->has_told_clock || llabs(seconds) < AGENT_CLOCK_TOLD_S)
        return;
    agent->has_told_clock = true;
    ct_warn("clock differs by %lld s (harmless): this node is %s the rendezvous",
            llabs(seconds), seconds > 0 ? "ahead of" : "behind");
}

static void on_up(void *context, const struct ct_welcome *welcome)
{
    struct agent *agent = context;

    compare_clocks(agent, welcome->wall_ns);
    agent->lost_after_ms = welcome->lost_after_ms;
    agent_take_host(agent);
}

static void on_connecting(void *context, const char *why, uint64_t waited_ms)
{
    const struct agent *agent = context;

    if (agent->options->on_connecting)
        agent->options->on_connecting(agent->options->context, why, waited_ms);
}

static void on_message(void *context, const struct ct_message *message)
{
    struct agent *agent = context;

    switch ((int)message->kind) {
    case CT_MESSAGE_WAITING: agent_take_waiting(agent, &message->waiting); break;
    case CT_MESSAGE_START: agent_take_start(agent, &message->start); break;
    case CT_MESSAGE_MEMBERS:
        if (agent->options->on_members && agent->has_store)
            agent->options->on_members(agent->options->context, agent->store,
                                       &message->members);
        break;
    case CT_MESSAGE_RESIZE: agent_take_resize(agent, &message->resize); break;
    case CT_MESSAGE_DRAIN: agent_take_drain(agent, &message->drain); break;
    case CT_MESSAGE_RESTART: agent_take_restart(agent, &message->restart); break;
    case CT_MESSAGE_STOP: agent_take_stop(agent, &message->stop); break;
    case CT_MESSAGE_VERDICT: agent_take_verdict(agent, &message->verdict); break;
    case CT_MESSAGE_ROSTER: agent_take_roster(agent, &message->roster); break;
    case CT_MESSAGE_ECHO: agent_take_echo(agent, &message->echo); break;
    case CT_MESSAGE_SIGNAL: agent_take_signal(agent, &message->signal); break;
    default:
        ct_warn("message ignored kind=%s", ct_message_name((int)message->kind));
        break;
    }
}

static void on_down(void *context, const struct ctrun_error *why)
{
    struct agent *agent = context;
    struct ctrun_error lost = *why;

    if (agent->lost_after_ms > 0 && why->code == CTRUN_E_UNREACHABLE)
        (void)ct_fail(&lost, CTRUN_E_LEADER_LOST, "the rendezvous is gone: %s",
                      why->text);
    if (link_was_up(agent->link))
        agent->is_silently_lost = link_was_silent(agent->link);
    if (agent_seek_host(agent, &lost) || agent_seek_heir(agent, &lost))
        return;
    switch (agent->state) {
    case AGENT_JOINING: /* nothing runs: it may come back */
        if (lost.code != CTRUN_E_LEADER_LOST) {
            agent_fail(agent, &lost);
            break;
        }
        agent_set_state(agent, AGENT_CONNECTING, why->text);
        link_connect(agent->link, agent_return_ms(agent));
        break;
    case AGENT_RUNNING: agent_fence(agent, &lost); break;
    case AGENT_STOPPING:
        if (agent->is_gone) {
            agent->result->error = lost;
            agent_return(agent);
        } else if (agent->after < AFTER_RETURN) {
            agent_fence(agent, &lost);
        }
        break;
    case AGENT_CONNECTING:
    case AGENT_SUCCEEDED: agent_fail(agent, &lost); break;
    case AGENT_ENDED: break;
    }
}

static size_t find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct agent *agent = context;

    return agent->options->find_servers(agent->options->context, out, max);
}

int agent_open_link(struct agent *agent, struct ctrun_error *err)
{
    const struct agent_options *options = agent->options;
    const struct link_options link = {
        .loop = agent->loop,
        .servers = options->server,
        .server_count = options->server_count,
        .find_servers = options->find_servers ? find_servers : NULL,
        .hello = &options->hello,
        .token = options->token,
        .uses_munge = options->uses_munge,
        .wants_seal = options->wants_seal,
        .context = agent,
        .on_up = on_up,
        .on_message = on_message,
        .on_down = on_down,
        .get_resume_state = agent_get_resume_state,
        .on_break = agent_on_break,
        .on_resumed = agent_on_resumed,
        .on_connecting = on_connecting,
    };

    return link_open(&agent->link, &link, err);
}
