/* SPDX-License-Identifier: Apache-2.0 */
/* The workers are asked to end and then made to, with all that they have started: policy.h says
 * what is done when. */
#include <signal.h>
#include <string.h>

#include "agent/cage.h"
#include "agent/crew_private.h"
#include "agent/reap.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"

static int running_count(const struct crew *crew)
{
    int count = 0;

    for (int i = 0; i < crew->count; i++)
        count += crew->workers[i].state == WORKER_RUNNING;
    return count;
}

/* True for the session of a worker that we have asked to stop. */
static bool is_asked_session(const struct crew *crew, pid_t session)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].pid == session && crew->workers[i].stop_signal)
            return true;
    return false;
}

struct census_walk {
    const struct crew *crew;
    struct policy_census census;
};

static void count_process(void *context, const struct reap_process *process)
{
    struct census_walk *walk = context;

    if (is_asked_session(walk->crew, process->session))
        walk->census.asked++;
    else
        walk->census.leftovers++;
}

static struct policy_census take_census(const struct crew *crew, uint64_t now_ms)
{
    struct census_walk walk = {.crew = crew};

    if (reap_is_childless())
        return walk.census;
    if (policy_wants_census(&crew->policy, now_ms))
        (void)reap_scan(NULL, count_process, &walk);
    if (walk.census.leftovers == 0 && walk.census.asked == 0)
        walk.census.asked = 1; /* a zombie, or not counted: somebody is there */
    return walk.census;
}

struct signal_walk {
    const struct crew *crew;
    unsigned action;
    int signal;
};

static void signal_process(void *context, const struct reap_process *process)
{
    const struct signal_walk *walk = context;
    const bool is_asked = is_asked_session(walk->crew, process->session);

    switch (walk->action) {
    case POLICY_SIGNAL_REST: /* the worker's own group has it already */
        if (is_asked && process->group != process->session)
            (void)kill(process->pid, walk->signal);
        break;
    case POLICY_KILL_LEFTOVERS:
        if (!is_asked)
            (void)kill(process->pid, SIGKILL);
        break;
    case POLICY_KILL_ALL: (void)kill(process->pid, SIGKILL); break;
    }
}

static void signal_running(struct crew *crew, int signal)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING)
            worker_signal(&crew->workers[i], signal);
}

static void note_leftover(void *context, const struct reap_process *process)
{
    struct crew *crew = context;

    if (!is_asked_session(crew, process->session))
        leftovers_note(&crew->leftovers, process->pid);
}

void crew_emit_leftovers(const struct crew *crew, const struct leftovers *leftovers,
                         const char *text)
{
    struct ct_event event;

    ct_event_begin(&event, "leftovers_killed");
    ct_event_int(&event, "generation", (int64_t)crew->start.generation);
    ct_event_int(&event, "count", leftovers->count);
    ct_event_str(&event, "processes", text);
    ct_event_end(&event);
}

static void tell_leftovers(struct crew *crew)
{
    const char *text = leftovers_text(&crew->leftovers);

    if (crew->leftovers.count == 0)
        return;
    crew_emit_leftovers(crew, &crew->leftovers, text);
    if (crew->options.agent->on_leftovers)
        crew->options.agent->on_leftovers(crew->options.agent->context, text);
    else
        ct_warn("killed what workers had left behind: %s", text);
}

static void act(struct crew *crew, unsigned actions)
{
    static const unsigned walks[] = {POLICY_SIGNAL_REST, POLICY_KILL_LEFTOVERS,
                                     POLICY_KILL_ALL};

    if (actions & POLICY_SIGNAL)
        signal_running(crew, crew->policy.signal);
    if (actions & POLICY_KILL_LEFTOVERS)
        (void)reap_scan(NULL, note_leftover, crew);
    if (actions & POLICY_KILL_ALL)
        signal_running(crew, SIGKILL);
    if (actions & POLICY_KILL_ALL ||
        (actions & POLICY_KILL_LEFTOVERS && running_count(crew) == 0))
        (void)cage_kill();
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        struct signal_walk walk = {crew, walks[i], crew->policy.signal};

        if (actions & walks[i])
            (void)reap_scan(NULL, signal_process, &walk);
    }
}

/* Everybody is gone, or will not go. */
static void end_stop(struct crew *crew)
{
    const bool is_stuck = crew->policy.phase == POLICY_UNKILLABLE;
    int survivors = 0;

    loop_timer_stop(crew->timer);
    for (int i = 0; i < crew->count && is_stuck; i++)
        if (crew->workers[i].state == WORKER_RUNNING) {
            worker_give_up(&crew->workers[i], &crew->place);
            survivors++;
        }
    memset(&crew->policy, 0, sizeof crew->policy);
    tell_leftovers(crew);
    crew->options.on_gone(crew->options.context,
                          is_stuck && survivors == 0 ? 1 : survivors);
}

void crew_continue_stop(struct crew *crew)
{
    const uint64_t now_ms = ct_now_ms();
    const struct policy_census census = take_census(crew, now_ms);
    uint64_t wake_ms;

    act(crew, policy_next(&crew->policy, &census, now_ms, &wake_ms));
    if (crew->policy.phase == POLICY_DONE || crew->policy.phase == POLICY_UNKILLABLE)
        end_stop(crew);
    else if (wake_ms != UINT64_MAX)
        loop_timer_set(crew->timer, wake_ms > now_ms ? wake_ms - now_ms : 0);
}

void crew_on_stop_timer(void *context)
{
    crew_reap(context); /* a SIGCHLD may be on its way, too */
}

void crew_stop(struct crew *crew, int signal, uint64_t grace_ms)
{
    const uint64_t now_ms = ct_now_ms();

    crew_give_up_restarts(crew);
    if (crew->policy.phase == POLICY_IDLE)
        policy_begin(&crew->policy, running_count(crew) > 0 ? signal : 0, grace_ms,
                     now_ms);
    else
        policy_hurry(&crew->policy, signal, grace_ms, now_ms);
    crew_continue_stop(crew);
}

void crew_extend(struct crew *crew, uint64_t grace_ms)
{
    policy_extend(&crew->policy, grace_ms, ct_now_ms());
    crew_continue_stop(crew);
}
