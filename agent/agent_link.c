/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the server. A message is borrowed for the call: what is needed later is copied into struct agent.
 *
 * link_send() may find that the connection is gone. It then calls on_down() or agent_on_break(), and the agent may have
 * another state, or no link, when it returns. */

#include <errno.h>

#include "agent/node/agent_private.h"
#include "worker_sdk/wire/layout.h"

/* No code compares clocks of two machines, but readers of logs do. */
static void compare_clocks(struct agent *agent, uint64_t theirs_ns)
{
    const int64_t seconds = ((int64_t)ct_wall_ns() - (int64_t)theirs_ns) / 1000000000;

    if (theirs_ns == 0 || agent->has_warned_clock ||
        llabs(seconds) < AGENT_CLOCK_WARN_S)
        return;
    agent->has_warned_clock = true;
    ct_warn("clock differs by %lld s (harmless): the clock of this node is %s that of "
            "the rendezvous",
            llabs(seconds), seconds > 0 ? "ahead of" : "behind");
}

/* The lease begins here. Sends what the server has to know of this node before JOIN, which
 * agent_on_welcomed() sends. */
static void on_up(void *context, const struct ct_welcome *welcome)
{
    struct agent *agent = context;

    compare_clocks(agent, welcome->wall_ns);
    agent->lost_after_ms = welcome->lost_after_ms;
    members_break(&agent->members);
    agent_report_ha(agent);
    agent_send_reload(agent);
    agent_on_welcomed(agent);
}

static void on_connecting(void *context, const struct ctrun_error *why,
                          uint64_t waited_ms)
{
    const struct agent *agent = context;

    if (agent->options->on_connecting)
        agent->options->on_connecting(agent->options->context, why, waited_ms);
}

static void on_message(void *context, const struct ct_message *message)
{
    struct agent *agent = context;

    switch ((int)message->kind) {
    case CT_MESSAGE_WAITING: agent_on_waiting(agent, message->waiting); break;
    case CT_MESSAGE_START: agent_on_start(agent, message->start); break;
    case CT_MESSAGE_MEMBERS:
        members_add(&agent->members, message->members);
        if (agent->options->on_members && agent->has_store)
            agent->options->on_members(agent->options->context, agent->store,
                                       message->members);
        break;
    case CT_MESSAGE_RESIZE: agent_on_resize(agent, message->resize); break;
    case CT_MESSAGE_DRAIN: agent_on_drain(agent, message->drain); break;
    case CT_MESSAGE_STACKS: agent_on_stacks(agent, message->stacks); break;
    case CT_MESSAGE_CLOCK: agent_on_clock(agent, message->clock); break;
    case CT_MESSAGE_CALLS: agent_on_calls(agent, message->calls); break;
    case CT_MESSAGE_ABSENT: agent_on_absent(agent, message->absent); break;
    case CT_MESSAGE_CHAOS: agent_on_chaos(agent, message->chaos); break;
    case CT_MESSAGE_REACHABILITY:
        agent_on_reachability(agent, message->reachability);
        break;
    case CT_MESSAGE_RESTART: agent_on_restart(agent, message->restart); break;
    case CT_MESSAGE_RELOAD: agent_on_reload(agent, message->reload); break;
    case CT_MESSAGE_LOSS: agent_on_loss(agent, message->loss); break;
    case CT_MESSAGE_GROW: agent_on_grow(agent, message->grow); break;
    case CT_MESSAGE_WORLD: agent_on_world(agent, message->world); break;
    case CT_MESSAGE_STOP: agent_on_stop(agent, message->stop); break;
    case CT_MESSAGE_VERDICT: agent_on_verdict(agent, message->verdict); break;
    case CT_MESSAGE_HA_PLAN: agent_on_ha_plan(agent, message->ha_plan); break;
    case CT_MESSAGE_SIGNAL: agent_on_signal(agent, message->signal); break;
    default:
        ct_warn("message ignored kind=%s", ct_message_name((int)message->kind));
        break;
    }
}

/* "; ranks 0-7 ran on node1", where the machine of the server is that of group rank 0; else empty. */
static void format_ranks(char *dst, size_t size, const struct agent *agent)
{
    const char *host = link_server_host(agent->link);
    const struct ct_start *start = &agent->start;
    const uint32_t slots = ct_layout_first(start->layout);

    *dst = '\0';
    if (*host && slots > 0 && strcmp(host, start->master_host) == 0)
        (void)ct_format(dst, size,
                        slots > 1 ? "; ranks 0-%u ran on %s" : "; rank %u ran on %s",
                        slots - 1, host);
}

/* "; node1 has left: SIGTERM from ...", where the last round ended because a node of the server's machine left; else empty. */
static void format_leaver(char *dst, size_t size, const struct agent *agent)
{
    const struct ct_stop *stop = &agent->stop;

    *dst = '\0';
    if (stop->reason == CT_STOP_MEMBERSHIP && *stop->cause.host && *stop->cause.text &&
        strcmp(stop->cause.host, link_server_host(agent->link)) == 0)
        (void)ct_format(dst, size, "; %s has left: %.200s", stop->cause.host,
                        stop->cause.text);
}

/* The link is down for good. The error code decides what follows (failover.h): the agent looks for a server that is
 * lost, not for one that refuses it. Before the first WELCOME an unreachable server is not a lost one. */
static void on_down(void *context, const struct ctrun_error *why)
{
    struct agent *agent = context;
    const char *host = link_server_host(agent->link);
    const char *own = agent->state == AGENT_SUCCEEDED && !agent_has_lost_all(agent)
                          ? "; the workers of this node had succeeded before"
                          : "";
    char ranks[CT_HOST_MAX + 48];
    char leaver[CT_HOST_MAX + 256];
    struct ctrun_error lost = *why;

    format_ranks(ranks, sizeof ranks, agent);
    format_leaver(leaver, sizeof leaver, agent);
    if (agent->lost_after_ms > 0 &&
        (why->code == CTRUN_E_UNREACHABLE || why->code == CTRUN_E_NO_HOST ||
         why->code == -EXFULL))
        (void)ct_fail(&lost, CTRUN_E_LEADER_LOST, "the rendezvous%s%s %s: %s%s%s%s",
                      *host ? " on " : "", host,
                      why->code == -EXFULL ? "does not take this node back" : "is gone",
                      why->text, leaver, ranks, own);
    else if (why->code == CTRUN_E_LEADER_LOST)
        (void)ct_fail(&lost, CTRUN_E_LEADER_LOST, "%s%s%s%s", why->text, leaver, ranks,
                      own);
    if (link_was_up(agent->link))
        agent->is_silently_lost = link_was_silent(agent->link);
    agent->result->was_at_ctrund = link_is_at_ctrund(agent->link);
    agent_on_lost(agent, &lost);
}

int agent_open_link(struct agent *agent, struct ctrun_error *err)
{
    const struct agent_options *options = agent->options;
    const struct link_options link = {
        .loop = agent->loop,
        .servers = options->server,
        .server_count = options->server_count,
        .tries_ports = options->tries_ports,
        .find_servers = agent_may_find(agent) ? agent_find_servers : NULL,
        .may_be_replaced = options->ha.nodes > 0,
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
