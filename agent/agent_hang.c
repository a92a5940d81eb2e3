/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout: a rank that tells steps no more. The node that notices saves the stacks of its
 * workers, then tells the failure; the others save theirs when they hear of it, before they stop. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_private.h"
#include "agent/facts.h"
#include "agent/hang.h"
#include "agent/reap.h"
#include "agent/stacks.h"
#include "agent/unkillable.h"
#include "agent/worker.h"
#include "worker_sdk/base/alloc.h"

struct hang_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct stacks *stacks;
    struct ct_failure
        failure; /* ours, told once the stacks are saved; cause NONE: not ours */
};

/* ---- Stacks -------------------------------------------------------------------------- */

/* Beside the worker's log files; false when there are none. */
static bool make_path(char *dst, size_t size, const struct worker *worker)
{
    const char *file = worker->plan.error_file;
    const char *slash = file ? strrchr(file, '/') : NULL;

    return slash &&
           ct_format(dst, size, "%.*s/stack.txt", (int)(slash - file), file) >= 0;
}

static struct stacks_target *list_targets(const struct crew *crew, int *count)
{
    struct stacks_target *targets = ct_zalloc_array((size_t)crew_count(crew),
                                                    sizeof *targets);

    *count = 0;
    for (int i = 0; targets && i < crew_count(crew); i++) {
        const struct worker *worker = crew_worker(crew, i);
        struct stacks_target *target = &targets[*count];

        if (worker->state != WORKER_RUNNING ||
            !make_path(target->path, sizeof target->path, worker))
            continue;
        target->pid = worker->pid;
        target->rank = worker->rank;
        ++*count;
    }
    return targets;
}

static void on_saved(void *context, bool is_saved)
{
    struct hang_watch *watch = context;
    struct agent *agent = watch->agent;

    if (agent->state != AGENT_RUNNING)
        return; /* stopped for another reason meanwhile */
    if (watch->failure.cause == CT_CAUSE_NONE) {
        agent_stop(agent, AFTER_REJOIN, SIGTERM, agent->options->grace_ms,
                   "a rank is stuck");
        return;
    }
    facts_add(&watch->failure, "now", "%s; workers stopped",
              is_saved ? "stacks of all ranks saved" : "stacks could not be saved");
    facts_add(&watch->failure, "do",
              "look at that stack; --hang-timeout %llu if this pause is normal",
              (unsigned long long)(agent->options->hang_timeout_ms / 1000 * 3));
    agent_tell_failure(agent, &watch->failure);
}

static void save(struct hang_watch *watch)
{
    int count;
    struct stacks_target *targets = list_targets(watch->agent->crew, &count);

    stacks_save(watch->stacks, targets, targets ? count : 0, on_saved, watch);
}

bool agent_saves_stacks(struct agent *agent, const struct ct_stop *stop)
{
    if (!agent->hang || stop->cause.cause != CT_CAUSE_HANG)
        return false;
    loop_timer_stop(agent->hang->timer);
    if (agent->hang->failure.cause == CT_CAUSE_NONE) /* else ours are being saved */
        save(agent->hang);
    return true;
}

/* ---- The suspect --------------------------------------------------------------------- */

static void fill_failure(struct hang_watch *watch, const struct worker *worker,
                         const struct hang_report *report, uint64_t silent_ms)
{
    struct agent *agent = watch->agent;
    struct ct_failure *failure = &watch->failure;
    char where[UNKILLABLE_WHERE_MAX];
    char path[PATH_MAX];
    char others[64] = "no other has got further";

    *failure = (struct ct_failure){
        .generation = agent->start.generation,
        .cause = CT_CAUSE_HANG,
        .code = (int32_t)report->doubt,
        .rank = worker->rank,
        .local_rank = worker->local_rank,
        .node_rank = (int32_t)agent->start.group_rank,
        .pid = worker->pid,
        .restart_count = agent->start.restart_count,
        .wall_ns = ct_wall_ns(),
        .uptime_ms = ct_now_ms() - worker->started_ms,
        .step = worker->step,
    };
    (void)ct_copy(failure->host, sizeof failure->host, agent->options->hello.host);
    worker_add_role(failure, worker, agent->options, &agent->start);
    if (report->ahead > 0)
        (void)ct_format(others, sizeof others, "others %lld",
                        (long long)report->furthest);
    (void)ct_format(failure->text, sizeof failure->text,
                    "last step %lld, %.1f s ago, %s", (long long)worker->step,
                    (double)silent_ms / 1000, others);
    unkillable_describe(where, worker->pid);
    if (make_path(path, sizeof path, worker))
        facts_add(failure, "it is in", "%s (stack: %s)", where, path);
    else
        facts_add(failure, "it is in", "%s", where);
    if (report->ahead > 0)
        facts_add(failure, "so",
                  "%d rank%s of this node waiting for it are victims, not the cause",
                  report->ahead, report->ahead > 1 ? "s" : "");
    else if (report->doubt <= HANG_RUNS)
        facts_add(failure, "so",
                  "all ranks of this node%s are at the same step: compare their stacks",
                  agent->options->join.roles.count > 0 ? " and role" : "");
}

static char state_of(pid_t pid)
{
    struct reap_process process = {.state = 'S'};

    (void)reap_look(pid, &process);
    return process.state;
}

/* The workers of one role that run, with their local ranks; returns how many. */
static int list_ranks(const struct agent *agent, int role, struct hang_rank *ranks,
                      int *local)
{
    int count = 0;

    for (int i = 0; i < crew_count(agent->crew); i++) {
        const struct worker *worker = crew_worker(agent->crew, i);
        struct ct_role_at its;

        worker_find_role(&its, worker, agent->options, &agent->start);
        if (worker->state != WORKER_RUNNING || its.number != role)
            continue;
        local[count] = i;
        ranks[count++] = (struct hang_rank){
            .step = worker->step,
            .told_ms = worker->step >= 0 ? worker->stepped_ms : worker->started_ms,
            .state = state_of(worker->pid)};
    }
    return count;
}

/* Each role by itself: a data server makes no steps of a trainer. */
static void on_time(void *context)
{
    struct hang_watch *watch = context;
    const struct agent *agent = watch->agent;
    const uint64_t now_ms = ct_now_ms();
    struct hang_rank ranks[AGENT_WORKERS_MAX];
    int local[AGENT_WORKERS_MAX];
    struct hang_report report;
    uint64_t next_ms = UINT64_MAX;
    int role = 0;

    if (agent->state != AGENT_RUNNING || agent->drained_by != 0)
        return;
    do {
        const int count = list_ranks(agent, role, ranks, local);
        uint64_t wake_ms;

        if (hang_find(ranks, count, agent->options->hang_timeout_ms, now_ms, &report,
                      &wake_ms)) {
            fill_failure(watch, crew_worker(agent->crew, local[report.suspect]),
                         &report, now_ms - ranks[report.suspect].told_ms);
            save(watch);
            return;
        }
        if (wake_ms < next_ms)
            next_ms = wake_ms;
    } while (++role < agent->options->join.roles.count);
    loop_timer_set(watch->timer, next_ms - now_ms);
}

/* ---- Life ---------------------------------------------------------------------------- */

void agent_start_hang(struct agent *agent)
{
    if (!agent->hang)
        return;
    stacks_cancel(agent->hang->stacks);
    agent->hang->failure.cause = CT_CAUSE_NONE;
    loop_timer_set(agent->hang->timer, agent->options->hang_timeout_ms);
}

void agent_stop_hang(struct agent *agent)
{
    if (!agent->hang)
        return;
    loop_timer_stop(agent->hang->timer);
    stacks_cancel(agent->hang->stacks);
}

int agent_open_hang(struct agent *agent, struct ctrun_error *err)
{
    struct hang_watch *watch;

    if (agent->options->hang_timeout_ms == 0)
        return 0;
    if (!(watch = ct_zalloc(sizeof *watch)))
        return ct_fail(err, -ENOMEM, "hang timeout: out of memory");
    agent->hang = watch;
    watch->agent = agent;
    watch->timer = loop_timer_open(agent->loop, on_time, watch);
    return watch->timer && stacks_create(&watch->stacks, agent->loop) == 0
               ? 0
               : ct_fail(err, -ENOMEM, "hang timeout: out of memory");
}

void agent_close_hang(struct agent *agent)
{
    if (!agent->hang)
        return;
    loop_timer_close(agent->hang->timer);
    stacks_destroy(agent->hang->stacks);
    free(agent->hang);
}
