/* SPDX-License-Identifier: Apache-2.0 */
/* --survive: a worker has failed, and the others go on in their processes.
 *
 *     all well ──one fails: all are told──> undecided ──all that run ask──> all well, one fewer
 *                                              │ survive_ms, or nobody is left
 *                                              └──> its failure is told as any other's
 *
 * One node alone: nobody else has a part in what is decided. */
#include <errno.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"

static bool is_undecided(const struct agent *agent)
{
    return worker_group_find_loss(agent->group) != NULL;
}

static void emit_loss(const struct ct_failure *failure, int left)
{
    struct ct_event event;

    ct_event_begin(&event, "rank_lost");
    ct_event_int(&event, "generation", (int64_t)failure->generation);
    ct_event_int(&event, "rank", failure->rank);
    ct_event_int(&event, "worker_pid", failure->pid);
    ct_event_str(&event, "cause", ct_cause_name(failure->cause));
    ct_event_int(&event, "code", failure->code);
    ct_event_int(&event, "left", left);
    ct_event_end(&event);
}

static void emit_world(const struct agent *agent, int left, uint64_t after_ms)
{
    struct ct_event event;

    ct_event_begin(&event, "world_shrunk");
    ct_event_int(&event, "generation", (int64_t)agent->start.generation);
    ct_event_int(&event, "epoch", agent->survival.epoch);
    ct_event_int(&event, "losses", agent->survival.losses);
    ct_event_int(&event, "left", left);
    ct_event_int(&event, "after_ms", (int64_t)after_ms);
    ct_event_end(&event);
}

/* Not where the round is about to end anyway. */
static bool may_go_on(const struct agent *agent)
{
    return agent->state == AGENT_RUNNING && agent->drained_by == 0 &&
           agent->stop.reason == 0 && worker_socket_is_used(agent->worker_socket);
}

bool agent_survives(void *context, const struct ct_failure *failure)
{
    struct agent *agent = context;
    const struct agent_options *options = agent->options;
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];
    const int left = worker_group_list_late(agent->group, late);
    char text[192];

    if (!may_go_on(agent) || left == 0)
        return false;
    if (!is_undecided(agent))
        agent->survival.since_ms = ct_now_ms();
    agent->survival.losses++;
    (void)ct_format(text, sizeof text, "rank %d (pid %d on %.64s) is lost: %s %d",
                    failure->rank, (int)failure->pid, failure->host,
                    ct_cause_name(failure->cause), failure->code);
    worker_socket_tell_rank_loss(agent->worker_socket, agent->survival.losses, text);
    loop_timer_set(agent->survival.timer, options->survive_ms);
    emit_loss(failure, left);
    if (options->on_rank_lost)
        options->on_rank_lost(options->context, failure, left);
    return true;
}

static void decide(struct agent *agent)
{
    const struct agent_options *options = agent->options;
    const uint64_t after_ms = is_undecided(agent)
                                  ? ct_now_ms() - agent->survival.since_ms
                                  : 0;
    struct ct_worker_world world = {.losses = agent->survival.losses};
    const int left = worker_group_regroup(agent->group, world.ranks,
                                          sizeof world.ranks);

    if (left == 0)
        return;
    world.epoch = ++agent->survival.epoch;
    loop_timer_stop(agent->survival.timer);
    worker_socket_tell_world(agent->worker_socket, &world);
    emit_world(agent, left, after_ms);
    if (options->on_shrunk)
        options->on_shrunk(options->context, left, after_ms);
}

static void give_up(struct agent *agent)
{
    struct ct_failure *loss = worker_group_find_loss(agent->group);

    if (loss && agent->state == AGENT_RUNNING)
        agent_tell_failure(agent, loss);
}

static void on_time(void *context)
{
    struct agent *agent = context;
    struct ct_failure *loss = worker_group_find_loss(agent->group);
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];

    (void)worker_group_list_late(agent->group, late);
    if (loss && *late)
        facts_add(loss, CT_FACT_NOW,
                  "not survived: within %llu s these ranks did not call "
                  "ctrun_group_shrink(): %s",
                  (unsigned long long)agent->options->survive_ms / 1000, late);
    give_up(agent);
}

void agent_on_fewer(void *context)
{
    struct agent *agent = context;
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];

    if (agent->state != AGENT_RUNNING)
        return;
    if (worker_group_list_late(agent->group, late) == 0)
        give_up(agent);
    else if (!*late)
        decide(agent);
}

bool agent_on_ask(void *context, int rank, uint64_t generation, pid_t pid)
{
    struct agent *agent = context;

    if (!agent->options->survive_ms || generation != agent->start.generation ||
        agent->state != AGENT_RUNNING || !worker_group_ask(agent->group, rank, pid))
        return false;
    agent_on_fewer(agent);
    return true;
}

void agent_begin_survival(struct agent *agent)
{
    agent->survival.losses = agent->survival.epoch = 0;
}

int agent_open_survival(struct agent *agent, struct ctrun_error *err)
{
    if (agent->options->survive_ms == 0)
        return 0;
    agent->survival.timer = loop_timer_open(agent->loop, on_time, agent);
    return agent->survival.timer ? 0
                                 : ct_fail(err, -ENOMEM, "--survive: out of memory");
}
