/* SPDX-License-Identifier: Apache-2.0 */
/* The workers are asked to end and then killed, with all processes that they have started: policy.h
 * decides what is done when. */
#include <signal.h>
#include <string.h>

#include "agent/control/worker_socket.h"
#include "agent/guard/fence.h"
#include "agent/loop/limits.h"
#include "agent/process/run_cgroup.h"
#include "agent/process/signal_effect.h"
#include "agent/process/reap.h"
#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

int worker_group_running_count(const struct worker_group *group)
{
    int count = 0;

    for (int i = 0; i < group->count; i++)
        count += group->workers[i].state == WORKER_RUNNING;
    return count;
}

/* True for the session of a worker that we have asked to stop, or are about to. */
static bool is_asked_session(const struct worker_group *group, pid_t session)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].pid == session &&
            (group->workers[i].stop_signal || group->workers[i].is_spared ||
             (group->workers[i].is_freed && group->workers[i].state == WORKER_RUNNING)))
            return true;
    return false;
}

static bool is_spared_session(const struct worker_group *group, pid_t session)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].pid == session && group->workers[i].is_spared)
            return true;
    return false;
}

/* A shell that wraps the program ends at once on the signal, while the program saves. */
static bool saves_for_worker(const struct worker_group *group,
                             const struct reap_process *process)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].pid == process->session)
            return group->workers[i].failure.end_code == -group->policy.signal &&
                   signal_effect_is_caught(process->pid, group->policy.signal);
    return false;
}

struct census_walk {
    const struct worker_group *group;
    struct policy_census census;
};

static void count_process(void *context, const struct reap_process *process)
{
    struct census_walk *walk = context;

    if (is_asked_session(walk->group, process->session))
        walk->census.asked++;
    else
        walk->census.orphans++;
}

static void visit_nobody(void *context, const struct reap_process *process)
{
    (void)context;
    (void)process;
}

/* With a template, which is a child as well, a look at /proc replaces the proof: the next look
 * finds a process that forks meanwhile, and at the latest the guard kills it. */
static bool is_childless(const struct worker_group *group)
{
    return group->keep.count == 0
               ? reap_is_childless()
               : worker_group_running_count(group) == 0 &&
                     reap_scan(&group->keep, visit_nobody, NULL) == 0;
}

static struct policy_census take_census(const struct worker_group *group,
                                        uint64_t now_ms)
{
    struct census_walk walk = {
        .group = group, .census = {.workers = worker_group_running_count(group)}};

    if (is_childless(group))
        return walk.census;
    if (policy_wants_census(&group->policy, now_ms))
        (void)reap_scan(&group->keep, count_process, &walk);
    if (walk.census.orphans == 0 && walk.census.asked == 0)
        walk.census.asked = 1; /* a zombie, or not counted: a process is left */
    return walk.census;
}

struct signal_walk {
    const struct worker_group *group;
    unsigned action;
    int signal;
};

static void signal_process(void *context, const struct reap_process *process)
{
    const struct signal_walk *walk = context;
    const bool is_asked = is_asked_session(walk->group, process->session);

    switch (walk->action) {
    case POLICY_SIGNAL_REST: /* the worker's own group has it already */
        if (is_asked && process->group != process->session &&
            !is_spared_session(walk->group, process->session))
            (void)kill(process->pid, walk->signal);
        break;
    case POLICY_KILL_ORPHANS:
        if (!is_asked)
            (void)kill(process->pid, SIGKILL);
        break;
    case POLICY_KILL_HELPERS:
        if (is_asked && !saves_for_worker(walk->group, process))
            (void)kill(process->pid, SIGKILL);
        break;
    case POLICY_KILL_ALL: (void)kill(process->pid, SIGKILL); break;
    }
}

static void signal_running(struct worker_group *group, int signal)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING && !group->workers[i].is_spared)
            worker_signal(&group->workers[i], signal);
}

static void signal_spared(struct worker_group *group, int signal)
{
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (worker->state == WORKER_RUNNING && worker->is_spared) {
            worker->is_spared = false;
            worker_signal(worker, signal);
        }
    }
}

/* They were asked by the worker socket, and save. */
static void spare_polling(struct worker_group *group, int signal, uint64_t grace_ms)
{
    int count = 0;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        const pid_t pid = worker_socket_find_polling(
            group->options.worker_socket, worker->rank, group->start.generation);

        worker->is_spared = worker->state == WORKER_RUNNING && pid != 0 &&
                            signal_effect_ends(pid, signal);
        count += worker->is_spared;
    }
    if (count > 0)
        policy_spare(&group->policy, grace_ms / 10 < AGENT_SPARED_MS ? grace_ms / 10 + 1
                                                                     : AGENT_SPARED_MS);
}

static void note_orphan(void *context, const struct reap_process *process)
{
    struct worker_group *group = context;

    if (!is_asked_session(group, process->session))
        orphans_note(&group->orphans, process->pid);
}

struct helper_walk {
    struct worker_group *group;
    int saving;
};

static void note_helper(void *context, const struct reap_process *process)
{
    struct helper_walk *walk = context;

    if (saves_for_worker(walk->group, process))
        walk->saving++;
    else
        orphans_note(&walk->group->orphans, process->pid);
}

static bool is_anybody_saving(struct worker_group *group)
{
    struct helper_walk walk = {.group = group};

    (void)reap_scan(&group->keep, note_helper, &walk);
    return walk.saving > 0;
}

static void report_orphans(struct worker_group *group)
{
    const char *text = orphans_text(&group->orphans);

    if (group->orphans.count == 0)
        return;
    orphans_emit(&group->orphans, group->start.generation, text);
    if (group->options.workers->on_orphans)
        group->options.workers->on_orphans(group->options.workers->context, text);
    else
        ct_warn("killed processes that workers left behind: %s", text);
}

/* The template is in the cgroup, too. */
static bool spares_template(const struct worker_group *group)
{
    return group->keep.count > 0 && (group->policy.phase != POLICY_KILLING ||
                                     ct_left_ms(group->policy.kill_deadline_ms) >
                                         AGENT_KILL_WAIT_MS - TEMPLATE_SPARED_MS);
}

static void act(struct worker_group *group, unsigned actions,
                const struct policy_census *census)
{
    static const unsigned walks[] = {POLICY_SIGNAL_REST, POLICY_KILL_ORPHANS,
                                     POLICY_KILL_HELPERS, POLICY_KILL_ALL};

    if (actions & POLICY_SIGNAL)
        signal_running(group, group->policy.signal);
    if (actions & POLICY_SIGNAL_SPARED)
        signal_spared(group, group->policy.signal);
    /* Noted before the kill: afterwards the orphans cannot be described. */
    if (actions & POLICY_KILL_ORPHANS)
        (void)reap_scan(&group->keep, note_orphan, group);
    if (actions & POLICY_SIGNAL_REST && group->loss.is_set) {
        group->loss.is_set = false;
        (void)worker_group_free_survivors(group, group->policy.signal, &group->loss.of);
    }
    if (actions & POLICY_KILL_HELPERS && !is_anybody_saving(group))
        actions |= POLICY_KILL_ALL;
    if (actions & POLICY_KILL_ALL) {
        signal_running(group, SIGKILL);
        signal_spared(group, SIGKILL);
    }
    /* A kill of the cgroup also ends what forks meanwhile; the walks below can miss such a process,
     * and are for processes that have left the cgroup or if there is no cgroup. */
    if (!spares_template(group) &&
        (actions & POLICY_KILL_ALL ||
         (actions & POLICY_KILL_ORPHANS && census->workers + census->asked == 0)))
        (void)run_cgroup_kill();
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        struct signal_walk walk = {group, walks[i], group->policy.signal};

        if (actions & walks[i])
            (void)reap_scan(&group->keep, signal_process, &walk);
    }
}

/* All processes are gone, or some cannot be killed. */
static void end_stop(struct worker_group *group)
{
    const bool is_stuck = group->policy.phase == POLICY_UNKILLABLE;
    int survivors = 0;

    loop_timer_stop(group->timer);
    if (is_stuck) { /* this node is given up: kill all that can be killed */
        template_destroy(group->place.template);
        group->place.template = NULL;
    }
    for (int i = 0; i < group->count && is_stuck; i++)
        if (group->workers[i].state == WORKER_RUNNING) {
            worker_give_up(&group->workers[i], &group->place);
            survivors++;
        }
    /* The group is idle from here on: on_gone may start the next round before it returns. */
    memset(&group->policy, 0, sizeof group->policy);
    group->loss.is_set = false;
    report_orphans(group);
    (void)shm_watch_remove(&group->shm, fence_next_ms());
    group->options.on_gone(group->options.context,
                           is_stuck && survivors == 0 ? 1 : survivors);
}

/* Called at each death and each deadline. May end the stop; the next round may have been started
 * when this returns. */
void worker_group_continue_stop(struct worker_group *group)
{
    const uint64_t now_ms = ct_now_ms();
    struct policy_census census;
    uint64_t wake_ms;

    template_keep(group->place.template, &group->keep);
    census = take_census(group, now_ms);
    act(group, policy_next(&group->policy, &census, now_ms, &wake_ms), &census);
    if (group->policy.phase == POLICY_DONE || group->policy.phase == POLICY_UNKILLABLE)
        end_stop(group);
    else if (wake_ms != UINT64_MAX)
        loop_timer_set(group->timer, wake_ms > now_ms ? wake_ms - now_ms : 0);
}

/* How a stop begins, or goes on when another reason for one comes. */
struct stop {
    int signal;
    uint64_t grace_ms;
    uint64_t delay_ms; /* before the signal */
    bool is_gentle;
};

/* A stop that has begun is never weakened: a second one can only shorten it. */
static void begin_stop(struct worker_group *group, const struct stop *stop)
{
    const uint64_t now_ms = ct_now_ms();
    const bool is_first = group->policy.phase == POLICY_IDLE;

    group->is_waiting = false;
    worker_group_give_up_restarts(group);
    shm_watch_look(&group->shm, true);
    if (is_first) {
        policy_begin(&group->policy,
                     worker_group_running_count(group) > 0 ? stop->signal : 0,
                     stop->grace_ms, now_ms);
        policy_postpone(&group->policy, stop->delay_ms);
    } else {
        policy_hurry(&group->policy, stop->signal, stop->grace_ms, now_ms);
    }
    if (is_first && stop->is_gentle)
        spare_polling(group, stop->signal, stop->grace_ms);
    else if (!stop->is_gentle && group->policy.spared_ms > 0)
        policy_spare(&group->policy, UINT64_MAX);
    worker_group_continue_stop(group);
}

void worker_group_stop(struct worker_group *group, int signal, uint64_t grace_ms,
                       bool is_gentle)
{
    begin_stop(
        group,
        &(struct stop){.signal = signal, .grace_ms = grace_ms, .is_gentle = is_gentle});
}

void worker_group_stop_survivors(struct worker_group *group, int signal,
                                 uint64_t grace_ms,
                                 const struct worker_group_loss *loss)
{
    const bool is_first = group->policy.phase == POLICY_IDLE;

    if (is_first && loss->grace_ms > 0 && worker_group_free_survivors(group, 0, loss)) {
        for (int i = 0; i < group->count; i++)
            group->workers[i].is_freed = group->workers[i].state == WORKER_RUNNING;
        begin_stop(group, &(struct stop){.signal = signal,
                                         .grace_ms = grace_ms,
                                         .delay_ms = loss->grace_ms});
        return;
    }
    if (is_first && loss->grace_ms == 0) {
        group->loss.of = *loss;
        group->loss.is_set = true;
    }
    worker_group_stop(group, signal, grace_ms, false);
}

void worker_group_extend(struct worker_group *group, uint64_t grace_ms)
{
    policy_extend(&group->policy, grace_ms, ct_now_ms());
    worker_group_continue_stop(group);
}
