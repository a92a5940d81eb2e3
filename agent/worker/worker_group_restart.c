/* SPDX-License-Identifier: Apache-2.0 */
/* One worker is started again alone while the others continue, or it is lost and they continue
 * without it: both only after all its orphans are dead, too (orphans.h). A lost worker may be
 * replaced when the others continue. */
#include "agent/control/worker_socket.h"
#include "agent/loop/limits.h"
#include "agent/process/orphans.h"
#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

/* True when a worker that is not new runs, or will run again. */
static bool is_at_work(const struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RESTARTING ||
            (group->workers[i].state == WORKER_RUNNING && !group->workers[i].is_new))
            return true;
    return false;
}

static bool is_news(const struct worker *worker)
{
    return worker_has_failed(worker) && !worker->is_lost;
}

/* The callbacks use up a restart, or report a loss to the others: they are called only when none of
 * the failures ends the round. */
struct worker *worker_group_find_final(struct worker_group *group, struct worker *first)
{
    const struct worker_group_options *options = &group->options;

    for (int i = 0; i < group->count; i++)
        if (is_news(&group->workers[i]) && !group->workers[i].plan.may_restart &&
            !options->survives)
            return first;
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        bool goes_on;

        if (!is_news(worker))
            continue;
        goes_on = worker->plan.may_restart
                      ? options->restarts_alone(options->context, &worker->failure)
                      : options->survives(options->context, &worker->failure);
        if (!goes_on)
            return worker;
        worker->is_lost = !worker->plan.may_restart;
        worker->is_survived = worker->is_new; /* no other worker had it as a member */
        worker->state = WORKER_RESTARTING;
    }
    return NULL;
}

/* True when no process of the worker is left. */
static bool is_reaped(const struct worker_group *group, struct worker *worker)
{
    struct orphans named = {0};
    int alive;

    if (worker->orphans)
        return orphans_kill(worker->orphans, NULL) == 0;
    worker->gone_by_ms = 0;
    if (!(worker->orphans = ct_zalloc(sizeof *worker->orphans)))
        return false; /* out of memory: gone_by_ms 0 gives the restart up */
    worker->orphans->session = worker->pid;
    worker->gone_by_ms = ct_deadline_ms(AGENT_KILL_WAIT_MS);
    alive = orphans_kill(worker->orphans, &named);
    if (named.count > 0)
        orphans_emit(&named, group->start.generation, orphans_text(&named));
    return alive == 0;
}

/* Progress and proof of the dead worker must not count for the next one. */
static void forget(struct worker_group *group)
{
    worker_socket_catch_up(group->options.worker_socket, 0);
    group->oom_proof[0] = '\0';
}

bool worker_group_continue_restarts(struct worker_group *group)
{
    bool is_any = false;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        bool is_over;

        if (worker->state != WORKER_RESTARTING)
            continue;
        if (!is_reaped(group, worker)) {
            is_over = ct_left_ms(worker->gone_by_ms) == 0;
            is_any = true;
        } else if (worker->is_lost) {
            worker->state = WORKER_ENDED;
            is_over = false;
        } else {
            forget(group);
            is_over = worker_restart(worker, &group->place) < 0;
        }
        if (!is_over)
            continue;
        /* Set before the report: the callback may stop the group, and must not find a restarting
         * worker then. */
        worker->state = WORKER_ENDED;
        group->options.on_failure(group->options.context, &worker->failure);
        return false;
    }
    if (is_any)
        loop_timer_set(group->restart_timer, AGENT_RESCAN_MS);
    return true;
}

/* A worker has ended with 0: the others will end soon. */
static bool is_ending(const struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_ENDED && !group->workers[i].is_new &&
            group->workers[i].failure.cause == CT_CAUSE_NONE)
            return true;
    return false;
}

bool worker_group_is_over(struct worker_group *group)
{
    if (is_at_work(group) || worker_group_find_loss(group))
        return false;
    if (!group->is_left_alone)
        worker_group_replace(group); /* all workers of this node may be lost */
    return group->is_left_alone || is_ending(group) || !worker_group_has_new(group);
}

void worker_group_replace(struct worker_group *group)
{
    const struct worker_group_options *options = &group->options;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (worker->state != WORKER_ENDED || !worker->is_survived ||
            !options->replaces || is_ending(group) ||
            !options->replaces(options->context, &worker->failure))
            continue;
        forget(group);
        if (worker_restart(worker, &group->place) < 0)
            worker->is_lost = worker->is_survived = true; /* its failure says why */
        worker->is_new = true;
    }
}

void worker_group_give_up_restarts(struct worker_group *group)
{
    loop_timer_stop(group->restart_timer);
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RESTARTING)
            group->workers[i].state = WORKER_ENDED;
}
