/* SPDX-License-Identifier: Apache-2.0 */
/* --stragglers: the rank that the others of this node wait for, step after step (agent/watch/straggler.h); nodes are
 * compared in agent_slow_node.c.
 *
 *     timer ──> the calls of programs of the SDK, from memory that they share with us; else of torch's recorders
 *               (worker_look.h) ──> who is late ──> ctrunctl status, an event, a metric of each rank
 *
 * A recorder answers in the process of its worker and takes time there: the next look is so much later that this is
 * half a percent of the time. No worker is stopped, and nothing is printed: being late is no error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/hang/agent_slow_node.h"
#include "agent/postmortem/flight.h"
#include "agent/recorder/worker_look.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/small_file.h"

/* Where calls of the SDK are read. */
struct flight_room {
    struct ct_flight raw;
    struct flight flight;
    struct straggler_call calls[CT_FLIGHT_ENTRIES];
    char stat[RANK_LOAD_STAT_MAX];
};

/* Used on the loop only; the thread of a look has a list of its own (worker_look.h). */
struct straggler_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct worker_look *look; /* NULL: no look is under way */
    struct straggler *straggler;
    struct flight_room *room;
    uint64_t period_ms;
    int answered;             /* recorders that answered the last time */
    int flights;              /* ranks that have given calls of the SDK */
    struct rank_load *before; /* by local rank, at the last look */
    struct rank_rates *rates;
    struct rank_gpu *gpus; /* by local rank; only known where a GPU can be asked */
    struct straggler_report report;
};

/* ---- What is reported -------------------------------------------------------------------- */

static void emit(const struct straggler_watch *watch, const char *name)
{
    const struct agent *agent = watch->agent;
    const struct straggler_report *late = &watch->report;
    const struct worker *worker = worker_group_worker(agent->group, late->found.rank);

    ct_event_emit(name, CT_INT("generation", agent->start.generation),
                  CT_INT("rank", late->rank), CT_INT("local_rank", worker->local_id),
                  CT_STR("host", agent->options->hello.host),
                  CT_INT("late_us", late->found.late_ns / 1000),
                  CT_INT("late_permille", late->found.share * 1000),
                  CT_INT("steps", late->found.steps), CT_STR("differs", late->differs));
}

static void find_differences(struct straggler_watch *watch)
{
    const int count = worker_group_count(watch->agent->group);

    rank_load_differs(watch->report.differs, watch->rates, count,
                      watch->report.found.rank);
}

static void report(struct straggler_watch *watch, const struct lateness *found)
{
    const struct agent *agent = watch->agent;
    const int rank = worker_group_worker(agent->group, found->rank)->rank;
    const bool is_new = !watch->report.is_set || watch->report.rank != rank;

    watch->report = (struct straggler_report){
        .is_set = true, .rank = rank, .found = *found};
    find_differences(watch);
    if (is_new)
        emit(watch, "straggler");
}

/* A report stays as long as its rank is late at all, so that reports do not come and go. */
static void judge(struct straggler_watch *watch)
{
    struct agent *agent = watch->agent;
    struct lateness found;
    const int rc = straggler_find(watch->straggler, &found);
    double late_ns;

    if (rc < 0)
        return; /* the next look has more memory, or not */
    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (straggler_late_ns(watch->straggler, i, &late_ns))
            worker_group_set_late(agent->group, i, late_ns / 1e9);
    if (!agent->sends_metrics) {
        agent->sends_metrics = true;
        loop_timer_set(agent->metrics_timer, AGENT_STEP_LOOK_MS);
    }
    if (rc > 0 || straggler_stays(&watch->report, &found)) {
        report(watch, &found);
    } else if (watch->report.is_set) {
        emit(watch, "straggler_over");
        watch->report.is_set = false;
    }
}

const struct straggler_report *agent_straggler(const struct agent *agent)
{
    return agent->stragglers && agent->stragglers->report.is_set
               ? &agent->stragglers->report
               : NULL;
}

/* One rank alone is enough where it is compared with ranks of other nodes. */
static int fewest_ranks(const struct agent *agent)
{
    return agent->start.group_world_size > 1 ? 1 : 2;
}

/* ---- Looks ------------------------------------------------------------------------------- */

/* Uses the values of the previous look, and begins to read those for the next one. */
static void look_at_gpus(struct straggler_watch *watch)
{
    const struct agent_options *options = watch->agent->options;

    if (options->look_at_gpus)
        options->look_at_gpus(options->context, watch->gpus, (int)options->join.slots);
}

/* Loads since the last look that may make a rank slow. */
static void look_at_loads(struct straggler_watch *watch)
{
    const struct worker_group *group = watch->agent->group;

    look_at_gpus(watch);
    (void)ct_small_file_read(watch->room->stat, sizeof watch->room->stat, "/proc/stat");
    for (int i = 0; i < worker_group_count(group); i++) {
        const struct worker *worker = worker_group_worker(group, i);
        struct rank_load load = {0};

        if (worker->state == WORKER_RUNNING)
            rank_load_look(&load, worker->pid, watch->room->stat);
        rank_load_rates(&watch->rates[i], &watch->before[i], &load);
        watch->rates[i].gpu = watch->gpus[i];
        watch->before[i] = load;
    }
}

/* Torch's calls have another clock and other group names. */
static void take_flight(void *context, int rank, int fd)
{
    struct straggler_watch *watch = context;
    struct flight_room *room = watch->room;
    const int local = rank - (int)watch->agent->start.rank_base;
    int count = 0;

    if (local < 0 || local >= worker_group_count(watch->agent->group) ||
        pread(fd, &room->raw, sizeof room->raw, 0) != sizeof room->raw ||
        flight_decode(&room->raw, sizeof room->raw, &room->flight) < 0)
        return;
    for (int i = 0; i < room->flight.call_count; i++) {
        const struct flight_call *call = &room->flight.calls[i];
        const char *name = call->group >= 0 ? room->flight.groups[call->group].name
                                            : "";

        if (call->sequence > 0 && call->sequence <= INT64_MAX && *name)
            room->calls[count++] = (struct straggler_call){
                .group = ct_hash(name, strlen(name)),
                .number = (int64_t)call->sequence,
                .entered_ns = call->begin_ns,
                .shape = ct_hash_add(ct_hash(call->name, strlen(call->name)),
                                     &call->count, sizeof call->count)};
    }
    if (count > 0 && straggler_give(watch->straggler, local, room->calls, count) == 0)
        watch->flights++;
}

/* A rank that made no step waits or computes: asking it often tells nothing. */
static void plan_next(struct straggler_watch *watch, bool has_answered, int steps,
                      uint64_t took_ms)
{
    uint64_t period_ms = took_ms * STRAGGLER_COST_PARTS;

    if (has_answered && steps <= 0 && period_ms < 2 * watch->period_ms)
        period_ms = 2 * watch->period_ms;
    watch->period_ms = period_ms < STRAGGLER_PERIOD_MIN_MS   ? STRAGGLER_PERIOD_MIN_MS
                       : period_ms > STRAGGLER_PERIOD_MAX_MS ? STRAGGLER_PERIOD_MAX_MS
                                                             : period_ms;
    loop_timer_set(watch->timer, watch->period_ms);
}

/* Gives the calls of all ranks to the comparison of nodes, and compares them on this node. More
 * than 0: there are new steps. */
static int take(struct straggler_watch *watch, bool is_wall)
{
    const int sent = agent_compare_nodes(watch->agent, watch->straggler, is_wall,
                                         watch->rates);
    const int steps = straggler_take(watch->straggler);

    if (steps > 0)
        judge(watch);
    return steps > 0 ? steps : sent;
}

static void on_seen(void *context, struct worker_seen *list, int count)
{
    struct straggler_watch *watch = context;
    uint64_t took_ms = 0;
    int answered = 0, before, steps = 0;

    watch->look = NULL;
    if (!agent_is_undisturbed(watch->agent))
        return;
    agent_discount_look(watch->agent);
    for (int i = 0; i < count; i++) {
        answered += list[i].has_recorder;
        if (list[i].took_ms > 0 && (took_ms == 0 || list[i].took_ms < took_ms))
            took_ms = list[i].took_ms; /* later ranks waited for this one */
        (void)straggler_give(watch->straggler, list[i].local_rank, list[i].calls,
                             list[i].call_count);
    }
    /* Without a recorder that was slow to answer, the list would be of another group. */
    before = watch->answered;
    watch->answered = answered;
    if (answered >= before && answered > 0)
        steps = take(watch, true);
    plan_next(watch, answered > 0, steps, took_ms);
}

/* False: too few workers can be asked. The look takes ownership of the list. */
static bool start_look(struct straggler_watch *watch)
{
    const struct agent *agent = watch->agent;
    const int most = worker_group_count(agent->group);
    struct worker_seen *list;
    int count = 0;

    if (!agent->recorder || !(list = ct_zalloc_array((size_t)most, sizeof *list)))
        return false;
    for (int i = 0; i < most; i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->state == WORKER_RUNNING)
            list[count++] = (struct worker_seen){
                .pid = worker->pid, .local_rank = i, .wants_calls = true};
    }
    if (count < fewest_ranks(agent)) {
        free(list);
        return false;
    }
    agent_settle_look(watch->agent);
    watch->look = worker_look_start(agent->loop, agent->recorder, list, count, on_seen,
                                    watch);
    return watch->look != NULL;
}

static void on_time(void *context)
{
    struct straggler_watch *watch = context;
    const struct agent *agent = watch->agent;
    int steps;

    if (!agent_is_undisturbed(agent))
        return;
    look_at_loads(watch);
    watch->flights = 0;
    worker_socket_each_flight(agent->worker_socket, agent->start.generation,
                              take_flight, watch);
    if (watch->flights >= fewest_ranks(agent)) {
        steps = take(watch, false);
        plan_next(watch, true, steps, 0);
    } else if (!start_look(watch)) {
        plan_next(watch, false, 0, 0);
    }
}

/* ---- Life -------------------------------------------------------------------------------- */

void agent_start_stragglers(struct agent *agent)
{
    struct straggler_watch *watch = agent->stragglers;

    if (!watch)
        return;
    worker_look_cancel(watch->look);
    watch->look = NULL;
    straggler_forget(watch->straggler);
    watch->report.is_set = false;
    watch->answered = 0;
    agent_start_slow_node(agent);
    look_at_gpus(watch);
    plan_next(watch, false, 0, 0);
}

int agent_open_stragglers(struct agent *agent, struct ctrun_error *err)
{
    const size_t slots = agent->options->join.slots;
    struct straggler_watch *watch;

    if (!agent->options->finds_stragglers)
        return 0;
    if (!(watch = ct_zalloc(sizeof *watch)))
        return ct_fail(err, -ENOMEM, "stragglers: out of memory");
    agent->stragglers = watch;
    watch->agent = agent;
    if (!(watch->before = ct_zalloc_array(slots, sizeof *watch->before)) ||
        !(watch->rates = ct_zalloc_array(slots, sizeof *watch->rates)) ||
        !(watch->gpus = ct_zalloc_array(slots, sizeof *watch->gpus)) ||
        !(watch->room = ct_zalloc(sizeof *watch->room)) ||
        !(watch->straggler = straggler_create((int)slots)) ||
        !(watch->timer = loop_timer_open(agent->loop, on_time, watch)))
        return ct_fail(err, -ENOMEM, "stragglers: out of memory");
    return agent_open_slow_node(agent, err);
}

void agent_close_stragglers(struct agent *agent)
{
    struct straggler_watch *watch = agent->stragglers;

    if (!watch)
        return;
    agent->stragglers = NULL;
    worker_look_cancel(watch->look);
    loop_timer_close(watch->timer);
    agent_close_slow_node(agent);
    straggler_destroy(watch->straggler);
    free(watch->room);
    free(watch->before);
    free(watch->rates);
    free(watch->gpus);
    free(watch);
}
