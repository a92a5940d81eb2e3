/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous' node is lost, and the others go on (worker_sdk/wire/takeover.h). Nothing runs
 * here by then. The members are asked in the order of their ranks; when it is this node's turn it
 * serves itself, for a while; then the lost one is asked again, and it all begins anew.
 *
 *     agent_follow ── next: a member ──no answer──> next ... ── this node ──nobody──> the lost one
 *                              └──WELCOME, JOIN, START─────────────┴──> agent_has_followed
 *
 * A node that came to the wrong one loses time and nothing else: who starts a world has proof. */
#include <errno.h>

#include "agent/agent_private.h"

enum {
    FOLLOW_TRY_MS = 2000,  /* a member that lives may still be ending its workers */
    FOLLOW_BACK_MS = 1500, /* the lost one, between two turns */
    FOLLOW_LEASES = 2,     /* so long others have to come to this node */
};

static void emit_ready(const struct heirs *heirs)
{
    struct ct_event event;

    ct_event_begin(&event, "takeover_ready");
    ct_event_int(&event, "generation", (int64_t)heirs->generation);
    ct_event_int(&event, "group_rank", (int64_t)heirs->self);
    ct_event_int(&event, "group_world_size", (int64_t)heirs->count);
    ct_event_int(&event, "host_rank", (int64_t)heirs->leader);
    ct_event_end(&event);
}

void agent_take_roster(struct agent *agent, const struct ct_roster *roster)
{
    if (roster->total > 0 && roster->generation != agent->start.generation)
        return;
    if (roster->first == 0)
        agent->followed = NULL;
    heirs_take(&agent->heirs, roster, agent->options->claim.key);
    if (!heirs_are_known(&agent->heirs))
        return;
    emit_ready(&agent->heirs);
    if (!agent_serves(agent))
        return;
    link_set_serving(agent->link, true);
    if (agent->state == AGENT_RUNNING)
        fence_arm(link_lease_ms(agent->link), agent->lost_after_ms);
}

bool agent_serves(const struct agent *agent)
{
    return (agent->options->hosts_server && !agent->has_yielded) || agent->is_heir;
}

bool agent_may_follow(const struct agent *agent)
{
    return agent->options->inherit && !agent_serves(agent) &&
           heirs_are_known(&agent->heirs) && agent->leave_reason[0] == '\0' &&
           agent->result->signal == 0;
}

/* Of the next round, as far as this node knows. */
static void note_restarts(struct agent *agent)
{
    if (agent->start.generation != agent->heirs.generation)
        return;
    agent->heir_restart_count = agent->stop.reason != 0 ? agent->stop.restart_count
                                                        : agent->start.restart_count;
}

static bool inherit(struct agent *agent)
{
    const struct heirs *heirs = &agent->heirs;
    uint64_t keys[CT_TAKEOVER_NODES_MAX];
    struct ct_heritage heritage = {.hello = agent->options->hello,
                                   .generation = heirs->generation,
                                   .restart_count = agent->heir_restart_count,
                                   .min_nodes = heirs->min_nodes,
                                   .keys = keys,
                                   .count = heirs->count,
                                   .self = heirs->self,
                                   .leader = heirs->leader};
    struct ctrun_error err;

    for (size_t i = 0; i < heirs->count; i++)
        keys[i] = heirs->list[i].key;
    if (agent->max_nodes > 0) {
        heritage.hello.min_nodes = agent->min_nodes;
        heritage.hello.max_nodes = agent->max_nodes;
    }
    if (agent->options->inherit(agent->options->context, &heritage, &err) < 0) {
        ct_warn("cannot take the rendezvous over: %s", err.text);
        return false;
    }
    agent->is_heir = true;
    link_set_serving(agent->link, true);
    loop_timer_set(agent->heir_timer, FOLLOW_LEASES * agent->lost_after_ms);
    return true;
}

static void follow_member(struct agent *agent, size_t i)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    const size_t count = heirs_find_addrs(&agent->heirs, i, addrs, CT_ADDRS_MAX);

    agent->followed = &agent->heirs.list[i];
    link_follow(agent->link, addrs, count, FOLLOW_TRY_MS);
}

/* All have been asked: the lost one may be back. */
static void try_back(struct agent *agent)
{
    agent->candidate = 0;
    agent->followed = NULL;
    if (ct_left_ms(agent->follow_deadline_ms) == 0 && agent->has_gone_round) {
        agent_fail(agent, &agent->lost);
        return;
    }
    agent->has_gone_round = true;
    if (agent->heirs.self == agent->heirs.leader && !inherit(agent)) {
        agent_fail(agent, &agent->lost);
        return;
    }
    link_follow(agent->link, NULL, 0, FOLLOW_BACK_MS);
}

static void follow_next(struct agent *agent)
{
    const struct heirs *heirs = &agent->heirs;

    while (agent->candidate < heirs->count) {
        const size_t i = agent->candidate++;

        if (!heirs_is_candidate(heirs, i))
            continue;
        if (i == heirs->self)
            agent->candidate = heirs->count; /* who comes later asks us */
        if (i == heirs->self && !inherit(agent))
            continue;
        follow_member(agent, i);
        return;
    }
    try_back(agent);
}

/* Nobody has come, or not enough: they may be with another one, or the lost one is back. */
static void stop_serving(struct agent *agent)
{
    if (!agent->is_heir)
        return;
    agent->is_heir = false;
    link_set_serving(agent->link, false);
    agent->options->yield(agent->options->context); /* the link breaks */
}

/* The host that was cut off comes to those who have gone on without it, as a new node. */
void agent_take_echo(struct agent *agent, const struct ct_echo *echo)
{
    const uint64_t now_ms = ct_now_ms();

    if (!echo->is_held || agent->state != AGENT_JOINING || !agent_serves(agent)) {
        agent->held_ms = 0;
        return;
    }
    if (agent->held_ms == 0)
        agent->held_ms = now_ms;
    if (now_ms - agent->held_ms < FOLLOW_LEASES * agent->lost_after_ms ||
        !agent->options->inherit || !heirs_are_known(&agent->heirs) ||
        agent->heirs.self != agent->heirs.leader)
        return;
    agent->held_ms = 0;
    (void)ct_fail(&agent->lost, CTRUN_E_LEADER_LOST,
                  "it was cut off from the others for too long");
    agent->has_yielded = agent->is_heir = true;
    stop_serving(agent);
}

static void on_heir_timer(void *context)
{
    struct agent *agent = context;

    if (agent->state == AGENT_JOINING)
        stop_serving(agent);
}

int agent_open_heirs(struct agent *agent, struct ctrun_error *err)
{
    agent->heir_timer = loop_timer_open(agent->loop, on_heir_timer, agent);
    return agent->heir_timer ? 0 : ct_fail(err, -ENOMEM, "agent: out of memory");
}

void agent_close_heirs(struct agent *agent)
{
    loop_timer_close(agent->heir_timer);
    heirs_clear(&agent->heirs);
}

void agent_follow(struct agent *agent)
{
    agent_close_store(agent);
    if (agent->follow_deadline_ms == 0) {
        uint64_t limit_ms = agent->is_silently_lost
                                ? LINK_RETURN_MS
                                : FOLLOW_LEASES * agent->lost_after_ms;

        if (agent->heirs.self == agent->heirs.leader) /* as long as for any new round */
            limit_ms = agent->options->hello.join_timeout_ms;
        agent->follow_deadline_ms = ct_deadline_ms(limit_ms);
        agent->candidate = link_was_refused(agent->link) ? agent->heirs.count : 0;
        agent->has_gone_round = false;
    }
    agent_set_state(agent, AGENT_CONNECTING, agent->lost.text);
    follow_next(agent);
}

bool agent_seek_heir(struct agent *agent, const struct ctrun_error *why)
{
    const bool is_following = agent->follow_deadline_ms != 0;

    if (is_following && agent->state == AGENT_CONNECTING)
        stop_serving(agent); /* our own server was not reached */
    if (!agent_may_follow(agent) || (why->code != CTRUN_E_LEADER_LOST && !is_following))
        return false;
    if (!is_following && !agent->has_yielded)
        agent->lost = *why;
    note_restarts(agent);
    switch (agent->state) {
    case AGENT_RUNNING: agent_fence(agent, why); return true;
    case AGENT_STOPPING:
        if (agent->after > AFTER_RETURN)
            return false;
        if (!agent->is_gone) {
            if (agent->after < AFTER_RETURN)
                agent_fence(agent, why);
            return true;
        }
        break;
    case AGENT_SUCCEEDED: /* the others' workers run again, and so do ours */
        agent_set_state(agent, AGENT_STOPPING, why->text);
        break;
    case AGENT_CONNECTING:
    case AGENT_JOINING: break;
    case AGENT_ENDED: return false;
    }
    agent_follow(agent);
    return true;
}

/* WELCOME. */
void agent_has_found(struct agent *agent)
{
    if (!agent->followed && agent->heirs.self != agent->heirs.leader)
        agent->follow_deadline_ms = 0; /* the lost one is back */
    if (agent->followed && agent->options->on_heir)
        agent->options->on_heir(agent->options->context, &agent->lost,
                                agent->heirs.list[agent->heirs.leader].host,
                                agent->followed, agent->is_heir);
}

/* START: of a roster before nothing is of use any more. */
void agent_has_followed(struct agent *agent)
{
    loop_timer_stop(agent->heir_timer);
    heirs_clear(&agent->heirs);
    agent->followed = NULL;
    agent->follow_deadline_ms = 0;
}
