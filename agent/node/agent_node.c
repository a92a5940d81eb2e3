/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all files of the agent call, and that call none of them: the agent's state, the
 * stop of its workers, its messages about itself. */
#include <assert.h>
#include <signal.h>

#include "agent/node/agent_private.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/watch/rank_list.h"
#include "agent/watch/stacks.h"
#include "agent/worker/worker.h"

static const char *const state_names[] = {"connecting", "joining",   "running",
                                          "stopping",   "succeeded", "ended"};

/* Which state may follow which. */
static const unsigned edges[] = {
    [AGENT_CONNECTING] = 1u << AGENT_JOINING | 1u << AGENT_ENDED,
    [AGENT_JOINING] = 1u << AGENT_CONNECTING | 1u << AGENT_RUNNING | 1u << AGENT_ENDED,
    [AGENT_RUNNING] = 1u << AGENT_STOPPING,
    [AGENT_STOPPING] = 1u << AGENT_SUCCEEDED | 1u << AGENT_JOINING |
                       1u << AGENT_CONNECTING | 1u << AGENT_ENDED,
    [AGENT_SUCCEEDED] = 1u << AGENT_STOPPING | 1u << AGENT_ENDED,
    [AGENT_ENDED] = 0,
};

bool agent_has_lost_all(const struct agent *agent)
{
    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (!worker_group_worker(agent->group, i)->is_survived)
            return false;
    return true;
}

const char *agent_state_name(const struct agent *agent)
{
    return agent->state == AGENT_SUCCEEDED && agent_has_lost_all(agent)
               ? "no_workers"
               : state_names[agent->state];
}

/* An edge that is not in the table is a mistake in this program: a debug build stops there. A
 * release build logs it and continues, because a run that works must not end for this. */
void agent_set_state(struct agent *agent, enum agent_state state, const char *why)
{
    const char *from = agent_state_name(agent);

    if (agent->state == state)
        return;
    if (!(edges[agent->state] & 1u << state))
        ct_err("agent: mistake in ctrun: state change not allowed from=%s to=%s", from,
               state_names[state]);
    assert(edges[agent->state] & 1u << state);
    agent->state = state;
    ct_debug("agent: %s -> %s (%s)", from, agent_state_name(agent), why);
    ct_event_emit("agent_state", CT_STR("from", from),
                  CT_STR("to", agent_state_name(agent)), CT_STR("why", why));
}

/* Final. The failover machine ends with the agent: a link that comes up while the loop ends has no
 * effect any more. */
void agent_end(struct agent *agent, const char *why)
{
    const struct failover_facts facts = {.work = FAILOVER_IS_OVER};

    agent_set_state(agent, AGENT_ENDED, why);
    (void)failover_next(&agent->failover, FAILOVER_ENDED, &facts);
    loop_stop(agent->loop);
}

/* The first error is the one that is reported: later errors follow from it. */
void agent_fail(struct agent *agent, const struct ctrun_error *why)
{
    if (agent->result->error.code == 0)
        agent->result->error = *why;
    agent_end(agent, why->text);
}

/* A store is of one round: the ranks of the next one must not find keys of this one. */
void agent_close_store(struct agent *agent)
{
    if (agent->has_store)
        agent->options->close_store(agent->options->context, agent->store);
    agent->has_store = false;
}

void agent_emit_round(const struct agent *agent, const char *name)
{
    const struct ct_start *start = &agent->start;

    ct_event_emit(name, CT_INT("generation", start->generation),
                  CT_INT("restart_count", start->restart_count),
                  CT_INT("group_rank", start->group_rank),
                  CT_INT("group_world_size", start->group_world_size),
                  CT_INT("rank_base", start->rank_base),
                  CT_INT("world_size", start->world_size),
                  CT_STR("master_addr", start->master_addr),
                  CT_INT("master_port", start->master_port));
}

/* ---- What it says ----------------------------------------------------------------------- */

/* A rank that ended because its collective timed out waited until then, but may have ended before this node looked. */
static void add_timed_out(struct ct_hang_view *view, const struct ct_stopped *stopped)
{
    if (view->ranks > view->waiting || (view->waiting > 0 && !*view->waiting_ranks))
        return; /* it may be one of those that were seen */
    if (view->ranks == 0)
        view->lowest = view->furthest = -1;
    for (int i = 0; i < stopped->failure_count; i++)
        if (failure_hints_victim(&stopped->failures[i]) == FAILURE_OF_DELAY &&
            rank_list_add(view->waiting_ranks, sizeof view->waiting_ranks,
                          stopped->failures[i].rank)) {
            view->ranks++;
            view->waiting++;
        }
}

/* Filled in in place, because it has 54 KiB. It may be sent again after a resume, and counts
 * once. */
void agent_send_stopped(struct agent *agent)
{
    struct ct_stopped *stopped = &agent->stopped;
    const struct ct_message message = {CT_MESSAGE_STOPPED, .stopped = stopped};

    stopped->generation = agent->start.generation;
    stopped->failure_count = (uint8_t)worker_group_get_failures(
        agent->group, stopped->failures, CT_FAILURES_MAX, &stopped->more);
    for (int i = 0; i < stopped->failure_count; i++)
        if (stopped->failures[i].cause != CT_CAUSE_STOPPED)
            agent_add_calls(agent, &stopped->failures[i]);
    stopped->hang = agent->timeout_view;
    if (agent->hang && agent->hang->view.ranks > 0)
        stopped->hang = agent->hang->view;
    else
        add_timed_out(&stopped->hang, stopped);
    link_send(agent->link, &message);
}

void agent_send_succeeded(struct agent *agent)
{
    const struct ct_succeeded succeeded = {.generation = agent->start.generation};
    const struct ct_message message = {CT_MESSAGE_SUCCEEDED, .succeeded = &succeeded};

    link_send(agent->link, &message);
}

/* Keeps the reason, to send it again after a resume. */
void agent_send_leave(struct agent *agent, const char *why)
{
    struct ct_leave leave = {.generation = agent->start.generation};
    const struct ct_message message = {CT_MESSAGE_LEAVE, .leave = &leave};

    (void)ct_copy(leave.reason, sizeof leave.reason, why);
    (void)ct_format(agent->leave_reason, sizeof agent->leave_reason, "%.100s", why);
    link_send(agent->link, &message);
}

void agent_send_stopping(struct agent *agent)
{
    const struct ct_stopping stopping = {.generation = agent->start.generation,
                                         .grace_ms = agent->options->survivor_grace_ms +
                                                     agent->options->grace_ms};
    const struct ct_message message = {CT_MESSAGE_STOPPING, .stopping = &stopping};

    link_send(agent->link, &message);
}

/* ---- The stop --------------------------------------------------------------------------- */

static void stop_hang(struct agent *agent)
{
    if (!agent->hang)
        return;
    loop_timer_stop(agent->hang->timer);
    stacks_cancel(agent->hang->stacks);
}

void agent_cancel_reachability(struct agent *agent)
{
    reachability_cancel(agent->reachability);
    for (int i = 0; i < CT_START_PEERS_MAX; i++)
        reachability_cancel(agent->peers[i]);
    if (agent->is_held)
        loop_timer_stop(agent->hold_timer);
    agent->peers_missing = 0;
    agent->is_held = false;
}

/* Stops all watchers, not the workers. While workers are being stopped `after` only grows: a new
 * round does not cancel the end of the run. */
static void stop_watching(struct agent *agent, enum agent_after after, const char *why)
{
    if (agent->state == AGENT_RUNNING) {
        agent->after = after;
        agent_recovery_stop(agent);
        agent_bill_stop(agent, after == AFTER_SUCCEED || after == AFTER_END);
        agent_set_state(agent, AGENT_STOPPING, why);
        if (after != AFTER_SUCCEED)
            (void)worker_socket_ask_to_stop(agent->worker_socket, why);
    } else if (after > agent->after) {
        agent->after = after;
    }
    agent_cancel_reachability(agent);
    dstate_watch_stop(agent->dstate_watch);
    stop_hang(agent);
    if (agent->survival.timer)
        loop_timer_stop(agent->survival.timer);
    if (agent->survival.cut_timer)
        loop_timer_stop(agent->survival.cut_timer);
    agent_stop_own(agent);
}

void agent_stop(struct agent *agent, enum agent_after after, int signal,
                uint64_t grace_ms, const char *why)
{
    stop_watching(agent, after, why);
    worker_group_stop(agent->group, signal, grace_ms,
                      agent->interrupts < 2 && !agent->has_drained);
}

static size_t list_own_addrs(const struct agent *agent,
                             uint8_t keys[CT_MESSAGE_ADDRS_MAX][CT_MEMBER_KEY_BYTES])
{
    struct ct_addr addr;
    size_t count = 0;

    for (int i = 0; i < agent->join.addr_count; i++)
        if (ct_addr_parse(agent->join.addrs[i], 0, &addr) == 0)
            ct_addr_key(keys[count++], &addr);
    return count;
}

/* If master_addr is a name, its address is not set here: then the lost store is known only from the
 * hosts of the round. */
static void add_lost_store(const struct agent *agent, struct peer_sockets_job *job)
{
    struct ct_addr addr;

    if (!agent->survival.has_lost_store ||
        ct_addr_parse(agent->start.master_addr, agent->start.master_port, &addr) < 0)
        return;
    ct_addr_key(job->lost_host, &addr);
    job->lost_port = agent->start.master_port;
}

void agent_fill_job(struct agent *agent, struct peer_sockets_job *job)
{
    const bool is_known = agent->members.kept.generation == agent->start.generation;

    *job = (struct peer_sockets_job){
        .store_port = agent->survival.has_lost_store ? 0 : agent->start.master_port,
        .hosts = (const uint8_t(*)[CT_MEMBER_KEY_BYTES])agent->members.kept.keys,
        .host_count = is_known ? agent->members.kept.count : 0,
        .own = (const uint8_t(*)[CT_MEMBER_KEY_BYTES])agent->own_keys,
        .own_count = list_own_addrs(agent, agent->own_keys)};
    add_lost_store(agent, job);
}

void agent_stop_survivors(struct agent *agent, enum agent_after after,
                          uint64_t survivor_ms, uint64_t grace_ms, const char *why)
{
    struct worker_group_loss loss = {.grace_ms = survivor_ms};

    agent_fill_job(agent, &loss.job);
    stop_watching(agent, after, why);
    worker_group_stop_survivors(agent->group, SIGTERM, grace_ms, &loss);
}
