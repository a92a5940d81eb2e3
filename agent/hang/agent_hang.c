/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout: a rank that no longer reports steps (a rank that reports none: agent_stuck.c).
 * The node that notices saves the stacks of its workers, then reports the failure; the other nodes
 * save theirs when they receive STOP, before they stop their workers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hang/agent_trace.h"
#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/unkillable.h"
#include "agent/process/reap.h"
#include "agent/watch/hang.h"
#include "agent/watch/rank_list.h"
#include "agent/watch/stacks.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

/* ---- Stacks -------------------------------------------------------------------------- */

/* Allocated; stacks_save() frees the list. The recorders' dumps move into it from agent_stuck.c. */
static struct stacks_target *list_targets(const struct agent *agent, int *count)
{
    const struct worker_group *group = agent->group;
    struct stacks_target *targets = ct_zalloc_array((size_t)worker_group_count(group),
                                                    sizeof *targets);

    *count = 0;
    for (int i = 0; targets && i < worker_group_count(group); i++) {
        const struct worker *worker = worker_group_worker(group, i);
        struct stacks_target *target = &targets[*count];

        if (worker->state != WORKER_RUNNING ||
            !agent_make_evidence_path(target->path, sizeof target->path, worker,
                                      "stack.txt"))
            continue;
        target->dump = agent_take_dump(agent, i);
        target->pid = worker->pid;
        target->rank = worker->rank;
        ++*count;
    }
    return targets;
}

/* A rank of this node may have written its error file and not end, because a thread or the exit of
 * a library hangs. */
static void add_raised(struct ct_failure *failure, const struct agent *agent)
{
    const struct ct_failure *raised = worker_group_find_raised(agent->group,
                                                               UINT64_MAX);

    if (raised)
        facts_add(failure, CT_FACT_LIKELY,
                  "the error that rank %d reported %.1f s ago, since when it has not "
                  "ended: %s",
                  raised->rank, (double)(ct_now_ms() - raised->happened_ms) / 1000,
                  raised->text);
}

/* The failure is reported, or the workers are stopped, only now: both end what the stacks show. */
static void on_saved(void *context, bool is_saved)
{
    struct hang_watch *watch = context;
    struct agent *agent = watch->agent;

    if (agent->state != AGENT_RUNNING)
        return; /* stopped for another reason meanwhile */
    if (watch->failure.cause == CT_CAUSE_NONE) {
        agent_stop_survivors(agent, AFTER_REJOIN, agent->options->survivor_grace_ms,
                             agent->options->grace_ms, "a rank is stuck");
        return;
    }
    add_raised(&watch->failure, agent);
    facts_add(&watch->failure, CT_FACT_NOW, "%s; workers stopped",
              is_saved ? "stacks of all ranks saved" : "the stacks could not be saved");
    agent_add_pause(&watch->failure, agent,
                    watch->failure.code == HANG_MEETS &&
                        watch->view.lowest == watch->view.furthest);
    agent_report_failure(agent, &watch->failure);
}

static char state_of(pid_t pid)
{
    struct reap_process process = {.state = 'S'};

    (void)reap_look(pid, &process);
    return process.state;
}

/* The workers of one role that run; returns how many. */
static int list_ranks(struct hang_watch *watch, int role)
{
    const struct agent *agent = watch->agent;
    struct hang_rank *ranks = watch->ranks;
    int count = 0;

    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);
        struct ct_role_at its;

        worker_find_role(&its, worker, &agent->options->join, &agent->start);
        if (worker->state != WORKER_RUNNING || worker->is_new || its.number != role)
            continue;
        watch->local[count] = i;
        ranks[count++] = (struct hang_rank){
            .step = worker->step,
            .stepped_ms = worker->step >= 0 ? worker->stepped_ms : worker->started_ms,
            .state = state_of(worker->pid),
            .waits = worker->waits || agent_stuck_waits(agent, i)};
    }
    return count;
}

/* The ranks that are in a collective, by rising local rank. */
static void format_waiting(char *dst, size_t size, const struct agent *agent,
                           const struct hang_rank *ranks, const int *local, int count)
{
    int *list = ct_zalloc_array((size_t)count, sizeof *list);
    int found = 0;

    for (int i = 0; list && i < count; i++)
        if (ranks[i].waits)
            list[found++] = worker_group_worker(agent->group, local[i])->rank;
    rank_list_format(dst, size, list, found);
    free(list);
}

/* Notes what this node's ranks do when it learns of a stuck rank. The server receives the note with
 * STOPPED and combines the notes of all nodes. Only the first call of a round counts: later the
 * workers are being ended. */
static void take_view(struct hang_watch *watch)
{
    const struct agent *agent = watch->agent;
    const int count = agent->options->join.roles.count > 0
                          ? 0 /* steps of another role say nothing */
                          : list_ranks(watch, 0);
    const struct hang_rank *ranks = watch->ranks;
    struct ct_hang_view *view = &watch->view;

    if (count == 0 || view->ranks > 0)
        return;
    *view = (struct ct_hang_view){
        .ranks = (uint32_t)count, .lowest = ranks[0].step, .furthest = ranks[0].step};
    for (int i = 0; i < count; i++) {
        view->waiting += ranks[i].waits;
        if (ranks[i].step < view->lowest)
            view->lowest = ranks[i].step;
        if (ranks[i].step > view->furthest)
            view->furthest = ranks[i].step;
    }
    format_waiting(view->waiting_ranks, sizeof view->waiting_ranks, agent, ranks,
                   watch->local, count);
}

/* Takes the view first: saving takes seconds. The trace comes last, because it does not change meanwhile. */
static void save(struct hang_watch *watch)
{
    int count;
    struct stacks_target *targets;
    struct agent_trace *trace;

    take_view(watch);
    targets = list_targets(watch->agent, &count);
    trace = targets ? agent_take_trace(watch->agent, targets, count) : NULL;
    stacks_save(watch->stacks, targets, targets ? count : 0, on_saved, watch);
    agent_save_trace(trace);
}

/* True: the workers are stopped later, by on_saved(). */
bool agent_saves_stacks(struct agent *agent, const struct ct_stop *stop)
{
    if (!agent->hang || stop->cause.cause != CT_CAUSE_HANG)
        return false;
    agent_refresh_steps(agent);
    loop_timer_stop(agent->hang->timer);
    if (agent->hang->failure.cause == CT_CAUSE_NONE) /* else saving has begun already */
        save(agent->hang);
    return true;
}

/* ---- The suspect --------------------------------------------------------------------- */

/* Adds facts about the ranks that are seen on this node. */
static void add_others(struct ct_failure *failure, const struct agent *agent,
                       const struct hang_report *report)
{
    if (report->waiting > 0)
        facts_add(failure, CT_FACT_SO,
                  "%d rank%s of this node wait%s in a collective that it has not "
                  "entered: not the cause",
                  report->waiting, report->waiting > 1 ? "s" : "",
                  report->waiting > 1 ? "" : "s");
    else if (report->ahead > 0)
        facts_add(failure, CT_FACT_SO, "%d rank%s of this node %s got further",
                  report->ahead, report->ahead > 1 ? "s" : "",
                  report->ahead > 1 ? "have" : "has");
    else if (report->doubt <= HANG_RUNS)
        facts_add(failure, CT_FACT_SO,
                  "the ranks of this node%s are at the same step: compare their stacks",
                  agent->options->join.roles.count > 0 ? " and role" : "");
}

static void fill_failure(struct hang_watch *watch, const struct worker *worker,
                         const struct hang_report *report, uint64_t silent_ms)
{
    const struct agent *agent = watch->agent;
    struct ct_failure *failure = &watch->failure;
    char where[UNKILLABLE_WHERE_MAX];
    char place[AGENT_PLACE_MAX];
    char path[PATH_MAX];
    char others[64] = "";

    agent_begin_hang(failure, agent, worker);
    failure->code = (int32_t)report->doubt;
    failure->step = worker->step;
    if (report->ahead > 0)
        (void)ct_format(others, sizeof others, ", others %lld",
                        (long long)report->furthest);
    if (worker->step >= 0)
        (void)ct_format(failure->text, sizeof failure->text,
                        "last step %lld, %.1f s ago%s", (long long)worker->step,
                        (double)silent_ms / 1000, others);
    else
        (void)ct_format(failure->text, sizeof failure->text,
                        "no step since it started %.1f s ago%s",
                        (double)silent_ms / 1000, others);
    unkillable_describe_stuck(where, worker->pid);
    agent_find_place(place, worker->pid);
    if (*place)
        facts_add(failure, CT_FACT_IS_IN, "%s", place);
    if (agent_make_evidence_path(path, sizeof path, worker, "stack.txt"))
        facts_add(failure, CT_FACT_IS_IN, "%s (stack: %s)", where, path);
    else
        facts_add(failure, CT_FACT_IS_IN, "%s", where);
    add_others(failure, agent, report);
}

/* Judges each role by itself: a data server reports no steps of a trainer. Reads the workers'
 * shared pages first, because workers report only some of their steps by a message. Does not set
 * the timer again after a suspect: a round reports one. */
static void on_time(void *context)
{
    struct hang_watch *watch = context;
    const struct agent *agent = watch->agent;
    const uint64_t now_ms = ct_now_ms();
    const struct hang_rank *ranks = watch->ranks;
    struct hang_report report;
    uint64_t next_ms = UINT64_MAX;
    int role = 0;

    if (agent->state != AGENT_RUNNING || agent->drained_by != 0)
        return;
    agent_refresh_steps(watch->agent);
    do {
        const int count = list_ranks(watch, role);
        uint64_t wake_ms;

        if (hang_find(ranks, count, agent->options->hang_timeout_ms, now_ms, &report,
                      &wake_ms)) {
            fill_failure(
                watch, worker_group_worker(agent->group, watch->local[report.suspect]),
                &report, now_ms - ranks[report.suspect].stepped_ms);
            save(watch);
            return;
        }
        if (wake_ms < next_ms)
            next_ms = wake_ms;
    } while (++role < agent->options->join.roles.count);
    loop_timer_set(watch->timer, next_ms - now_ms);
}

/* Another node has reported a stuck rank: the rank that holds all up may be on this node. */
static bool find_worse(struct hang_watch *watch, const struct ct_failure *theirs)
{
    const struct agent *agent = watch->agent;
    const uint64_t now_ms = ct_now_ms();
    const struct hang_rank *ranks = watch->ranks;
    struct hang_report report;
    const struct hang_rank *suspect;
    const int count = agent->options->join.roles.count > 0 ? 0 /* its role is unknown */
                                                           : list_ranks(watch, 0);

    if (count == 0)
        return false;
    hang_look(ranks, count, &report);
    suspect = &ranks[report.suspect];
    if (suspect->step > theirs->step ||
        (suspect->step == theirs->step && (int32_t)report.doubt <= theirs->code))
        return false;
    fill_failure(watch, worker_group_worker(agent->group, watch->local[report.suspect]),
                 &report, now_ms - suspect->stepped_ms);
    return true;
}

/* While STOP is UNDECIDED the server accepts other suspects. Sent without agent_report_failure(), because the round is
 * stopped already. */
bool agent_send_worse(struct agent *agent, const struct ct_stop *stop)
{
    struct ct_failure failure;
    const struct ct_message message = {CT_MESSAGE_FAILURE, .failure = &failure};

    if (!agent->hang || stop->cause.cause != CT_CAUSE_HANG ||
        stop->reason != CT_STOP_UNDECIDED ||
        agent->hang->failure.cause != CT_CAUSE_NONE)
        return false;
    agent_refresh_steps(agent);
    if (agent_is_stuck_failure(&stop->cause)) {
        if (!agent_find_more_stuck(agent, &stop->cause, &failure))
            return false;
    } else if (find_worse(agent->hang, &stop->cause)) {
        failure = agent->hang->failure;
        agent->hang->failure.cause =
            CT_CAUSE_NONE; /* STOP is handled first: it saves the stacks */
    } else {
        return false;
    }
    link_send(agent->link, &message);
    return true;
}

/* ---- Life ---------------------------------------------------------------------------- */

/* A round begins: gives up saving the stacks of the previous one. */
void agent_start_hang(struct agent *agent)
{
    agent_start_stragglers(agent);
    if (!agent->hang)
        return;
    stacks_cancel(agent->hang->stacks);
    agent->hang->failure.cause = CT_CAUSE_NONE;
    agent->hang->view = (struct ct_hang_view){0};
    loop_timer_set(agent->hang->timer, agent->options->hang_timeout_ms);
    agent_start_stuck(agent);
}

const struct recorder_folder *agent_recorder(const struct agent *agent)
{
    return agent->recorder;
}

static int open_watch(struct agent *agent, struct ctrun_error *err)
{
    struct hang_watch *watch;

    if (agent->options->hang_timeout_ms == 0)
        return 0;
    if (!(watch = ct_zalloc(sizeof *watch)))
        return ct_fail(err, -ENOMEM, "hang timeout: out of memory");
    agent->hang = watch;
    watch->agent = agent;
    watch->timer = loop_timer_open(agent->loop, on_time, watch);
    if (!watch->timer || stacks_create(&watch->stacks, agent->loop) < 0)
        return ct_fail(err, -ENOMEM, "hang timeout: out of memory");
    return agent_open_stuck(agent, err);
}

/* Both watches use the recorder's folder, and so do the marks of a start. Without the folder the run continues, a look reads
 * only the frames, and no mark is seen. */
static void open_recorder(struct agent *agent)
{
    const struct template_plan *plan = agent->options->workers.template;
    const bool serves = agent->hang || agent->options->finds_stragglers;
    const unsigned wants = (serves ? RECORDER_SERVE : 0) |
                           (plan && plan->learns ? RECORDER_LEARN : 0);
    struct ctrun_error why;

    if (!serves && !agent->options->sees_start_marks)
        return;
    if (recorder_folder_open(&agent->recorder, wants, &why) < 0) {
        if (serves)
            ct_warn("torch's flight recorder cannot be read, so that a rank that waits "
                    "is found by its Python frames alone: %s",
                    why.text);
    } else if (start_marks_open(&agent->start_marks, agent->loop, agent->recorder,
                                agent_on_start_mark, agent, &why) == 0)
        return;
    ct_info("init_process_group() and the first steps of torch's optimizers are not "
            "seen: %s",
            why.text);
}

int agent_open_hang(struct agent *agent, struct ctrun_error *err)
{
    const int rc = open_watch(agent, err);

    open_recorder(agent);
    return rc < 0 ? rc : agent_open_stragglers(agent, err);
}

static void close_watch(struct agent *agent)
{
    if (!agent->hang)
        return;
    agent_close_stuck(agent);
    loop_timer_close(agent->hang->timer);
    stacks_destroy(agent->hang->stacks);
    free(agent->hang);
}

void agent_close_hang(struct agent *agent)
{
    agent_close_stragglers(agent);
    close_watch(agent);
    start_marks_close(agent->start_marks);
    agent->start_marks = NULL;
    recorder_folder_close(agent->recorder);
    agent->recorder = NULL;
}
