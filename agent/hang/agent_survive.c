/* SPDX-License-Identifier: Apache-2.0 */
/* --survive: a worker has failed, and the others continue in their processes; --survive-replace: another worker
 * is started in its place, and joins them.
 *
 *     state of the world  what happens                            what follows
 *     all well            a member fails                          its loss is sent to all; undecided
 *                         a new worker asks                       all are told that it waits; all well
 *                         all members ask (grow)                  decision
 *                         a new worker fails                      replaced again; no other worker is told
 *                         all members end with 0                  success; a new worker is stopped
 *     undecided           another member fails                    its loss is sent, too; survive_ms restarts
 *                         all members that run ask, and nothing
 *                         of a lost one lives                     decision
 *                         survive_ms, or no member is left        the first loss is reported to the server as a failure
 *     decision            (at once)                               the next world has all that asked, new ones too; its
 *                                                                 epoch is one higher; all that asked are told
 *                         a rank is lost, --survive-replace       a worker is started in its place; it is new: no
 *                         is not used up                          member yet, and no rank waits for it
 *
 * Only this file decides which workers are members, and only while every worker that may be one waits: so two worlds
 * never run at once, growing or shrinking. The generation does not change: no process of another one exists.
 *
 * This holds for one node. Where a run may have several nodes, the server decides, by the same rule: agent_world.c. */
#include <errno.h>

#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"

static void emit_replacing(const struct agent *agent, const struct ct_failure *failure)
{
    ct_event_emit("rank_replacing", CT_INT("generation", failure->generation),
                  CT_INT("rank", failure->rank), CT_INT("worker_pid", failure->pid),
                  CT_INT("count", agent->survival.replaced),
                  CT_INT("limit", agent->options->survive_replace));
}

static void emit_ready(const struct agent *agent, int rank)
{
    ct_event_emit("rank_ready", CT_INT("generation", agent->start.generation),
                  CT_INT("rank", rank));
}

/* A new worker; over several nodes a new worker that has not asked: after it has asked it may be in
 * a world. */
static bool is_unknown(const struct agent *agent, int rank)
{
    return worker_group_is_new(agent->group, rank) &&
           !(agent_shares_world(agent) && worker_group_is_asking(agent->group, rank));
}

/* The worker group asks this when a worker has failed, before it reports the failure. True: the failure is not
 * reported, unless give_up() does so later. */
bool agent_survives(void *context, const struct ct_failure *failure)
{
    struct agent *agent = context;
    const struct agent_options *options = agent->options;
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];
    const int left = worker_group_list_late(agent->group, late);
    char text[192];

    if (is_unknown(agent, failure->rank))
        return true; /* the others never had it as a member */
    if (!agent_is_undisturbed(agent))
        return false;
    if (agent_shares_world(agent))
        return agent_lose_rank(agent, failure);
    if (left == 0 || !worker_socket_is_used(agent->worker_socket))
        return false;
    if (!agent_is_undecided(agent))
        agent->survival.since_ms = ct_now_ms();
    agent->survival.losses++;
    (void)ct_format(text, sizeof text, "rank %d (pid %d on %.64s) is lost: %s %d",
                    failure->rank, (int)failure->pid, failure->host,
                    ct_cause_name(failure->cause), failure->code);
    worker_socket_send_rank_loss(agent->worker_socket, agent->survival.losses, text);
    loop_timer_set(agent->survival.timer, options->survive_ms);
    agent_cut_now(agent);
    agent_report_lost(agent, failure, left);
    return true;
}

static void decide(struct agent *agent)
{
    const bool is_loss = agent_is_undecided(agent);
    const int64_t after_ms = is_loss ? (int64_t)(ct_now_ms() - agent->survival.since_ms)
                                     : -1;
    struct ct_worker_world world = {.losses = agent->survival.losses};
    int joined;
    const int left = worker_group_regroup(agent->group, world.ranks, sizeof world.ranks,
                                          &joined);

    if (left == 0)
        return;
    world.epoch = ++agent->survival.epoch;
    loop_timer_stop(agent->survival.timer);
    agent_stop_cutting(agent);
    worker_socket_send_world(agent->worker_socket, &world);
    if (is_loss || joined == 0)
        agent_report_shrunk(agent, left - joined, after_ms);
    if (joined > 0)
        agent_report_grown(agent, joined, left);
    worker_group_look_soon(agent->group); /* which ranks are to be replaced */
}

/* Over several nodes all workers of this node may be lost. */
static bool is_used(const struct agent *agent)
{
    return agent_shares_world(agent) ? worker_socket_was_used(agent->worker_socket)
                                     : worker_socket_is_used(agent->worker_socket);
}

bool agent_replaces(void *context, const struct ct_failure *failure)
{
    struct agent *agent = context;
    const struct agent_options *options = agent->options;

    if (!agent_is_undisturbed(agent))
        return false;
    if (worker_group_is_renewed(agent->group, failure->rank))
        return true; /* this agent ended it on purpose: not counted */
    if (!is_used(agent) || agent->survival.replaced >= options->survive_replace)
        return false;
    agent->survival.replaced++;
    emit_replacing(agent, failure);
    if (options->on_replacing)
        options->on_replacing(options->context, failure, agent->survival.replaced);
    return true;
}

static void give_up(struct agent *agent)
{
    struct ct_failure *loss = worker_group_find_loss(agent->group);

    if (loss && agent->state == AGENT_RUNNING)
        agent_report_failure(agent, loss);
}

static void on_time(void *context)
{
    struct agent *agent = context;
    const struct agent_options *options = agent->options;
    const unsigned long long seconds = options->survive_ms / 1000;
    const char *asking = options->frees_peers ? "ask who continues (ctrun.elastic)"
                                              : "call ctrun_group_shrink()";
    struct ct_failure *loss = worker_group_find_loss(agent->group);
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];

    (void)worker_group_list_late(agent->group, late);
    if (loss && !*late)
        facts_add(loss, CT_FACT_NOW,
                  "not survived: within %llu s it was not decided who continues: ranks "
                  "of other nodes did not %s, the rendezvous did not answer, or "
                  "processes of the lost rank still ran",
                  seconds, asking);
    else if (loss)
        facts_add(loss, CT_FACT_NOW,
                  "not survived: within %llu s these ranks did not %s: %s", seconds,
                  asking, late);
    give_up(agent);
}

void agent_on_fewer(void *context)
{
    struct agent *agent = context;
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];

    if (agent->state != AGENT_RUNNING)
        return;
    if (agent_shares_world(agent))
        agent_send_still(agent);
    else if (worker_group_list_late(agent->group, late) == 0)
        give_up(agent);
    else if (!*late)
        decide(agent);
}

bool agent_on_ask(void *context, int rank, uint64_t generation, pid_t pid)
{
    struct agent *agent = context;
    bool is_new;

    if (!agent->options->survive_ms || generation != agent->start.generation ||
        agent->state != AGENT_RUNNING || !worker_group_ask(agent->group, rank, pid))
        return false;
    is_new = worker_group_is_new(agent->group, rank);
    if (is_new)
        emit_ready(agent, rank);
    if (is_new && agent_shares_world(agent))
        agent_send_grow(agent, rank); /* before the STILL that names it */
    agent_on_fewer(agent);
    if (is_new && !agent_shares_world(agent))
        worker_socket_send_grow(agent->worker_socket);
    agent_cut_soon(agent);
    return true;
}

void agent_begin_survival(struct agent *agent)
{
    if (agent_shares_world(agent))
        agent_begin_world(agent);
    else
        agent->survival.losses = agent->survival.epoch = 0;
    agent_stop_cutting(agent);
}

int agent_open_survival(struct agent *agent, struct ctrun_error *err)
{
    if (agent->options->survive_ms == 0)
        return 0;
    agent->survival.timer = loop_timer_open(agent->loop, on_time, agent);
    if (!agent->survival.timer || agent_open_cutting(agent) < 0)
        return ct_fail(err, -ENOMEM, "--survive: out of memory");
    return 0;
}
