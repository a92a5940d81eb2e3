/* SPDX-License-Identifier: Apache-2.0 */
/* Acts on the results of failover.h when a server is found, lost or found again. */
#include <string.h>

#include "agent/node/agent_private.h"

static enum failover_work get_work(const struct agent *agent)
{
    static const enum failover_work stopping[] = {
        [AFTER_SUCCEED] = FAILOVER_CLEANS,
        [AFTER_REJOIN] = FAILOVER_ENDS,
        [AFTER_RETURN] = FAILOVER_FENCES,
        [AFTER_END] = FAILOVER_LEAVES,
    };

    switch (agent->state) {
    case AGENT_CONNECTING: return FAILOVER_NO_WORK;
    case AGENT_JOINING: return FAILOVER_WAITS;
    case AGENT_RUNNING: return FAILOVER_RUNS;
    case AGENT_STOPPING:
        return agent->is_gone ? FAILOVER_IS_EMPTY : stopping[agent->after];
    case AGENT_SUCCEEDED: return FAILOVER_IS_DONE;
    case AGENT_ENDED: break;
    }
    return FAILOVER_IS_OVER;
}

/* The run's own etcd does not come back once it has lost its majority; a network may come back. */
static uint64_t get_seek_ms(const struct agent *agent)
{
    const struct agent_options *options = agent->options;

    if (!agent_may_find(agent))
        return 0;
    return options->ha.nodes > 0 && options->connect_timeout_ms > LINK_RETURN_MS
               ? LINK_RETURN_MS
               : options->connect_timeout_ms;
}

/* All events except the agent's own end go through here. The caller acts on the result. */
static unsigned step(struct agent *agent, enum failover_event event)
{
    const struct failover_facts facts = {
        .work = get_work(agent), .seek_ms = get_seek_ms(agent), .now_ms = ct_now_ms()};
    const enum failover_state before = agent->failover.state;
    const unsigned actions = failover_next(&agent->failover, event, &facts);

    if (agent->failover.state != before)
        ct_debug("failover: %s -> %s", failover_state_name(before),
                 failover_state_name(agent->failover.state));
    return actions;
}

/* A ctrund that ends is started again, and the others of a run that has no world yet wait for it as well. */
static bool awaits_first_world(const struct agent *agent)
{
    uint64_t generation;

    (void)link_instance(agent->link, &generation);
    return generation == 0 && !agent->waiting.is_spare &&
           link_is_at_ctrund(agent->link);
}

static uint64_t return_ms(const struct agent *agent)
{
    const struct agent_options *options = agent->options;
    const uint64_t usual_ms = failover_return_ms(agent->is_silently_lost,
                                                 link_tried_ms(agent->link),
                                                 options->connect_timeout_ms);
    const uint64_t join_ms = (uint64_t)ct_left_ms(
        ct_deadline_after(agent->join_ms, options->hello.join_timeout_ms));

    return awaits_first_world(agent) && join_ms > usual_ms ? join_ms : usual_ms;
}

/* The server takes a broken link for a lost node and will start a world without us: our workers
 * must have ended before. */
static void end_workers(struct agent *agent, enum agent_after after,
                        const struct ctrun_error *why, uint64_t looked_for_ms)
{
    const struct agent_options *options = agent->options;
    const uint64_t left_ms = (uint64_t)ct_left_ms(link_deadline_ms(agent->link));
    const uint64_t grace_ms = failover_grace_ms(
        options->survivor_grace_ms + options->grace_ms, agent->lost_after_ms, left_ms);
    const uint64_t survivor_ms = options->survivor_grace_ms < grace_ms / 2
                                     ? options->survivor_grace_ms
                                     : grace_ms / 2;

    fence_finish(); /* first: no later message of a server extends the workers' time */
    if (options->on_lost)
        options->on_lost(options->context, why, looked_for_ms);
    agent_stop_survivors(agent, after, survivor_ms, grace_ms - survivor_ms, why->text);
}

/* Ends the workers while the agent looks for the next server. If a server welcomes the agent before
 * the workers are gone, the agent joins after that (FAILOVER_FOUND). */
static void seek(struct agent *agent, const struct ctrun_error *why, bool ends_workers)
{
    const uint64_t left_ms = failover_left_ms(&agent->failover, ct_now_ms());

    ct_info("looking for another rendezvous server: %s", why->text);
    if (ends_workers)
        end_workers(agent, AFTER_REJOIN, why, left_ms);
    link_seek(agent->link, left_ms);
}

/* Keeps the error for agent_goes_on_when_gone(): the agent looks for a server only after the last
 * worker is gone. */
static void fence(struct agent *agent, const struct ctrun_error *why)
{
    agent->result->error = *why;
    end_workers(agent, AFTER_RETURN, why,
                failover_has_sought(&agent->failover) ? 0 : return_ms(agent));
}

static void return_to_server(struct agent *agent, const char *why)
{
    agent_set_state(agent, AGENT_CONNECTING, why);
    link_connect(agent->link, return_ms(agent));
}

/* The agent's world has ended, and JOIN leads to a new one: the next server counts from its own
 * generation. */
static void forget_world(struct agent *agent)
{
    if (agent->start.generation == 0 && !agent->awaits_server)
        return;
    agent->awaits_server = false;
    agent->start.generation = 0;
    memset(&agent->stop, 0, sizeof agent->stop);
    memset(&agent->result->error, 0, sizeof agent->result->error);
    if (agent->options->on_returned)
        agent->options->on_returned(agent->options->context);
}

/* Forgets the old generation before JOIN: the next server may count from a lower one, and the agent
 * would take its START for an old one. */
static void join_anew(struct agent *agent)
{
    if (agent->state ==
        AGENT_SUCCEEDED) /* the other nodes' workers run again, and so do ours */
        agent_set_state(agent, AGENT_STOPPING,
                        "the next server was not informed that this node has ended");
    forget_world(agent);
    agent->min_nodes =
        agent->options->hello.min_nodes; /* RESIZE follows if the run has others */
    agent->max_nodes = agent->options->hello.max_nodes;
    link_set_progress(agent->link, 0, -1);
    agent_join(agent);
}

/* ---- What happens ----------------------------------------------------------------------- */

void agent_on_welcomed(struct agent *agent)
{
    if (step(agent, FAILOVER_WELCOMED) & FAILOVER_JOIN)
        join_anew(agent);
}

void agent_on_break(void *context, const struct ctrun_error *why, uint64_t left_ms)
{
    struct agent *agent = context;

    members_break(&agent->members);
    (void)step(agent, FAILOVER_BROKE);
    ct_info("link broken, trying to resume for %llu ms: %s",
            (unsigned long long)left_ms, why->text);
    if (agent->options->on_break && agent->state != AGENT_JOINING)
        agent->options->on_break(agent->options->context, why->text,
                                 agent->state == AGENT_RUNNING, left_ms);
}

void agent_on_resumed(void *context, const struct ct_resumed *resumed)
{
    struct agent *agent = context;
    const bool keeps_workers = agent->failover.state != FAILOVER_SEEKING ||
                               agent->state != AGENT_STOPPING;

    ct_info("link resumed state=%s generation=%llu", agent_state_name(agent),
            (unsigned long long)agent->start.generation);
    agent_report_ha(agent);
    agent_send_reload(agent);
    if (step(agent, FAILOVER_RESUMED) & FAILOVER_SEND_AGAIN)
        agent_send_again(agent, resumed);
    if (agent->options->on_back && agent->state != AGENT_JOINING)
        agent->options->on_back(agent->options->context, keeps_workers);
}

void agent_on_lost(struct agent *agent, const struct ctrun_error *why)
{
    const unsigned actions = step(
        agent, why->code == CTRUN_E_LEADER_LOST ? FAILOVER_LOST : FAILOVER_REFUSED);

    if (actions & FAILOVER_SEEK)
        seek(agent, why, actions & FAILOVER_END_WORKERS);
    if (actions & FAILOVER_FENCE)
        fence(agent, why);
    if (actions & FAILOVER_FAIL)
        agent_fail(agent, why);
    if (!(actions & FAILOVER_CONNECT))
        return;
    if (agent->state == AGENT_STOPPING) /* no node is left of its world */
        agent->result->error = *why;
    agent->awaits_server = awaits_first_world(agent);
    if (agent->awaits_server && agent->options->on_awaited)
        agent->options->on_awaited(agent->options->context, why, return_ms(agent));
    return_to_server(agent, why->text);
}

bool agent_goes_on_when_gone(struct agent *agent)
{
    const unsigned actions = step(agent, FAILOVER_GONE);

    if (!(actions & (FAILOVER_CONNECT | FAILOVER_JOIN | FAILOVER_FAIL)))
        return false;
    /* Like finish_round() of agent_round.c, but without STOPPED: there is no server to receive it. */
    agent_emit_round(agent, "round_stopped");
    agent_close_store(agent);
    if (actions & FAILOVER_FAIL) {
        agent_fail(agent, &agent->result->error);
    } else if (actions & FAILOVER_CONNECT) {
        return_to_server(agent, agent->result->error.text);
    } else {
        agent->is_gone = true;
        join_anew(agent);
    }
    return true;
}
