/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout for workers that report no steps: watched from outside (agent/watch/stuck.h).
 *
 *     timer ──> what workers read, write and run (traffic.h) ──> sometimes: the call they are in (worker_look.h)
 *                                                                  └──> judge; report to the server,
 *     which stops all nodes unless it knows of progress on another node: then the suspect is reported again later.
 *
 * Stacks and dumps are saved when the STOP comes (agent_hang.c). */
#include "agent/hang/agent_stuck.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/watch/traffic.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

enum {
    FAILURE_CODE =
        16, /* ct_failure.code of such workers begins here: every hang_doubt is smaller */
    FAILURE_PROVEN = 8,
    CLOCK_SET_MS = 500
};

static uint64_t limit_ms(const struct stuck_watch *watch)
{
    return watch->agent->options->hang_timeout_ms;
}

/* ---- What they do ------------------------------------------------------------------------ */

static void forget(struct stuck_mind *mind)
{
    free(mind->dump);
    *mind = (struct stuck_mind){0};
}

/* Memory counts as progress only when it has grown by STUCK_GROWS_MIB: the kernel's count is delayed. */
static void sample(struct stuck_mind *mind, const struct worker *worker,
                   uint64_t now_ms)
{
    struct traffic traffic;
    bool grows;

    if (mind->pid != worker->pid) {
        forget(mind);
        mind->pid = worker->pid;
        mind->moved_ms = mind->rested_ms = worker->started_ms;
    }
    traffic_look(&traffic, worker->pid);
    grows = traffic.memory_mib >= mind->memory_mib + STUCK_GROWS_MIB;
    if (traffic.bytes != mind->bytes || grows)
        mind->moved_ms = now_ms;
    if (traffic.switches != mind->switches)
        mind->rested_ms = now_ms;
    mind->bytes = traffic.bytes;
    if (grows)
        mind->memory_mib = traffic.memory_mib;
    mind->switches = traffic.switches;
    mind->state = traffic.state;
}

/* Notes when the wall clock is set, because the recorder's times use it: after that every wait
 * would look long, or none. */
static void check_clock(struct stuck_watch *watch, uint64_t now_ms)
{
    const int64_t ahead_ms = (int64_t)(ct_wall_ns() / 1000000) - (int64_t)now_ms;
    const int64_t change_ms = ahead_ms - watch->wall_ahead_ms;

    if (change_ms > CLOCK_SET_MS || change_ms < -CLOCK_SET_MS)
        watch->clock_ms = now_ms;
    watch->wall_ahead_ms = ahead_ms;
}

static bool sample_all(struct stuck_watch *watch, uint64_t now_ms)
{
    const struct worker_group *group = watch->agent->group;
    bool has_steps = false;

    check_clock(watch, now_ms);
    for (int i = 0; i < worker_group_count(group); i++) {
        const struct worker *worker = worker_group_worker(group, i);

        has_steps |= worker->step >= 0;
        if (worker->state == WORKER_RUNNING && !worker->is_new)
            sample(&watch->minds[i], worker, now_ms);
        else
            forget(&watch->minds[i]);
    }
    return has_steps;
}

/* ---- What they are in -------------------------------------------------------------------- */

static int64_t entered(void *context, int index, const char *group)
{
    const struct stuck_watch *watch = context;
    const int local = watch->local[index];

    /* The recorder's earlier answer proves nothing about now. */
    return local < 0 || !watch->minds[local].answers
               ? -1
               : recorder_view_find(&watch->minds[local].view, group);
}

/* Converts a time of the recorder to our clock. */
static uint64_t to_ms(const struct stuck_watch *watch, uint64_t wall_ns)
{
    const int64_t ms = (int64_t)(wall_ns / 1000000) - watch->wall_ahead_ms;

    return ms > (int64_t)watch->clock_ms ? (uint64_t)ms : watch->clock_ms;
}

/* The recorder is believed before the frames: a thread may wait for a call of another thread. */
static void fill_rank(struct stuck_rank *out, const struct stuck_watch *watch,
                      struct stuck_mind *mind)
{
    const struct recorder_call *oldest = &mind->view.oldest;
    const struct recorder_call *newest = &mind->view.newest;

    *out = (struct stuck_rank){.state = mind->state, .since_ms = mind->moved_ms};
    if (mind->answers && *oldest->op) {
        out->waits = true;
        out->since_ms = to_ms(watch, oldest->entered_ns);
        out->group = oldest->group;
        out->number = oldest->number;
        (void)ct_format(mind->call, sizeof mind->call, "%s%s%s", oldest->op,
                        *oldest->sizes ? " " : "", oldest->sizes); /* fits */
        out->call = mind->call;
    } else if (mind->is_seen && (mind->place.meets || mind->place.is_backward)) {
        out->waits = true;
        out->since_ms = mind->rested_ms;
    } else if (*newest->op && to_ms(watch, newest->entered_ns) > out->since_ms) {
        out->since_ms = to_ms(watch, newest->entered_ns);
    }
    mind->waits = out->waits;
}

/* Lists the running workers in watch->ranks and ->local; returns their number. The ranks point into
 * the minds, which the next look replaces. */
static int list_running(struct stuck_watch *watch)
{
    int count = 0;

    for (int i = 0; i < worker_group_count(watch->agent->group); i++)
        if (watch->minds[i].pid != 0) {
            watch->local[count] = i;
            fill_rank(&watch->ranks[count++], watch, &watch->minds[i]);
        }
    return count;
}

/* ---- Judged ------------------------------------------------------------------------------ */

/* Nodes compare these codes: after another node's suspect only a higher one is reported. A proven suspect has a higher
 * code than a likely one. */
static int32_t code_of(const struct stuck_report *report)
{
    return FAILURE_CODE + (int32_t)report->doubt +
           (report->verdict == STUCK_MISSING ? FAILURE_PROVEN : 0);
}

bool agent_is_stuck_failure(const struct ct_failure *failure)
{
    return failure->cause == CT_CAUSE_HANG && failure->code >= FAILURE_CODE;
}

/* Sent without agent_report_failure(), because the server may know of progress on another node. Then no STOP comes, and
 * judge() sends it again STUCK_AGAIN_MS later. */
static void send_suspect(struct stuck_watch *watch, int count)
{
    struct agent *agent = watch->agent;
    struct stuck_report report;
    struct ct_failure failure;
    const struct ct_message message = {CT_MESSAGE_FAILURE, .failure = &failure};

    if (!stuck_look(watch->ranks, count, entered, watch, &report))
        return;
    agent_stuck_fill(&failure, watch, count, &report);
    agent_add_unreachable(agent, &failure);
    failure.code = code_of(&report);
    failure.age_ms = limit_ms(watch);
    agent_stuck_fill_call(&failure, watch, count, &report);
    link_send(agent->link, &message);
}

/* Reports once that for some time no look could read any worker: the programs report no steps, and
 * are no Python or have memory that cannot be read. */
static void report_nobody(struct stuck_watch *watch, uint64_t now_ms)
{
    const struct agent *agent = watch->agent;

    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (watch->minds[i].answers || watch->minds[i].place.is_python ||
            (watch->minds[i].pid != 0 && !watch->minds[i].is_seen))
            watch->unread_ms = 0;
    if (watch->unread_ms == 0)
        watch->unread_ms = now_ms;
    if (watch->has_reported_nobody || !agent->options->on_no_steps ||
        now_ms < watch->unread_ms + limit_ms(watch) ||
        now_ms < watch->unread_ms + STUCK_NOBODY_MS)
        return;
    watch->has_reported_nobody = true;
    agent->options->on_no_steps(agent->options->context);
}

static void judge(struct stuck_watch *watch)
{
    const uint64_t now_ms = ct_now_ms();
    const uint64_t part_ms = limit_ms(watch) / STUCK_LOOK_PARTS;
    const int count = list_running(watch);
    const uint64_t due_ms = stuck_due_ms(watch->ranks, count, limit_ms(watch));

    watch->look_ms = now_ms +
                     (part_ms > STUCK_LOOK_MIN_MS ? part_ms : STUCK_LOOK_MIN_MS);
    report_nobody(watch, now_ms);
    if (due_ms <= now_ms) {
        watch->look_ms = now_ms + STUCK_AGAIN_MS;
        send_suspect(watch, count);
    } else if (due_ms < watch->look_ms) {
        watch->look_ms = due_ms;
    }
}

/* A recorder's answer takes memory of its worker, and a thread that allocates for the first time
 * reads the number of CPUs: neither is progress. */
static void discount_look(struct stuck_mind *mind)
{
    struct traffic traffic;

    traffic_look(&traffic, mind->pid);
    if (traffic.memory_mib > mind->memory_mib)
        mind->memory_mib = traffic.memory_mib;
    if (traffic.bytes - mind->bytes < STUCK_LOOK_BYTES)
        mind->bytes = traffic.bytes;
}

void agent_settle_look(struct agent *agent)
{
    if (agent->stuck)
        (void)sample_all(agent->stuck, ct_now_ms());
}

void agent_discount_look(struct agent *agent)
{
    for (uint32_t i = 0; agent->stuck && i < agent->options->join.slots; i++)
        if (agent->stuck->minds[i].pid != 0)
            discount_look(&agent->stuck->minds[i]);
}

/* The other nodes need the time of this node's last progress. */
static void send_moved(struct stuck_watch *watch)
{
    const int count = list_running(watch);
    uint64_t moved_ms = 0;

    for (int i = 0; i < count; i++)
        if (watch->ranks[i].since_ms > moved_ms)
            moved_ms = watch->ranks[i].since_ms;
    link_set_moved(watch->agent->link, moved_ms);
}

/* On the loop. `list` is borrowed, but the minds take its dumps. The pid differs if the worker was started again. */
static void on_seen(void *context, struct worker_seen *list, int count)
{
    struct stuck_watch *watch = context;

    watch->look = NULL;
    if (!agent_is_undisturbed(watch->agent))
        return;
    for (int i = 0; i < count; i++) {
        struct stuck_mind *mind = &watch->minds[list[i].local_rank];

        if (mind->pid != list[i].pid)
            continue; /* another worker in its place */
        mind->is_seen = list[i].is_seen;
        mind->answers = list[i].has_recorder;
        mind->place = list[i].place;
        if (!mind->answers)
            continue;
        discount_look(mind);
        mind->view = list[i].view;
        free(mind->dump);
        mind->dump = list[i].dump;
        list[i].dump = NULL;
    }
    send_moved(watch);
    judge(watch);
}

/* Some worker has done nothing for a while that others can see. Otherwise the rank that holds up
 * others makes progress, and no look is needed. */
static bool is_quiet(const struct stuck_watch *watch, uint64_t now_ms)
{
    const uint64_t part_ms = limit_ms(watch) / STUCK_LOOK_PARTS;

    for (int i = 0; i < worker_group_count(watch->agent->group); i++)
        if (watch->minds[i].pid != 0 &&
            (!watch->minds[i].is_seen || now_ms >= watch->minds[i].moved_ms + part_ms))
            return true;
    return false;
}

static void start_look(struct stuck_watch *watch, uint64_t now_ms)
{
    const int most = worker_group_count(watch->agent->group);
    struct worker_seen *list = ct_zalloc_array((size_t)most, sizeof *list);
    int count = 0;

    for (int i = 0; list && i < most; i++)
        if (watch->minds[i].pid != 0) {
            list[count].pid = watch->minds[i].pid;
            list[count].is_stopped = watch->minds[i].state == 'T' ||
                                     watch->minds[i].state == 't';
            list[count++].local_rank = i;
        }
    if (count > 0)
        watch->look = worker_look_start(watch->agent->loop, watch->agent->recorder,
                                        list, count, on_seen, watch);
    else
        free(list);
    if (!watch->look)
        watch->look_ms = now_ms + STUCK_AGAIN_MS;
}

static void on_time(void *context)
{
    struct stuck_watch *watch = context;
    const struct agent *agent = watch->agent;
    const uint64_t now_ms = ct_now_ms();
    uint64_t period_ms = limit_ms(watch) / STUCK_PERIOD_PARTS;

    if (!agent_is_undisturbed(agent))
        return;
    if (!sample_all(watch, now_ms) && !watch->look && now_ms >= watch->look_ms) {
        if (is_quiet(watch, now_ms))
            start_look(watch, now_ms);
        else
            watch->unread_ms = 0; /* without a look this is not known */
    }
    send_moved(watch);
    period_ms = period_ms < STUCK_PERIOD_MIN_MS   ? STUCK_PERIOD_MIN_MS
                : period_ms > STUCK_PERIOD_MAX_MS ? STUCK_PERIOD_MAX_MS
                                                  : period_ms;
    if (!watch->look && watch->look_ms > now_ms && watch->look_ms < now_ms + period_ms)
        period_ms = watch->look_ms - now_ms;
    loop_timer_set(watch->timer, period_ms);
}

/* ---- What others ask --------------------------------------------------------------------- */

/* Enters, behind our ranks, one that stands for those of another node that wait. */
static void add_theirs(struct stuck_watch *watch, int count,
                       const struct ct_failure *theirs)
{
    struct stuck_rank *rank = &watch->ranks[count];

    watch->local[count] = -1;
    watch->theirs = (struct ct_stuck_call){0};
    *rank = (struct stuck_rank){.state = 'S', .waits = true};
    if (theirs->call_count == 0 || !*theirs->call[0].group || !*theirs->call[0].op)
        return;
    watch->theirs = theirs->call[0];
    rank->group = watch->theirs.group;
    rank->number = watch->theirs.number;
}

/* A rank of another node waits in a call that this node's recorders may not know. */
bool agent_find_more_stuck(struct agent *agent, const struct ct_failure *theirs,
                           struct ct_failure *out)
{
    struct stuck_watch *watch = agent->stuck;
    struct stuck_report report;
    int count;

    if (!watch)
        return false;
    (void)sample_all(watch, ct_now_ms());
    count = list_running(watch);
    add_theirs(watch, count, theirs);
    if (count == 0 || !stuck_look(watch->ranks, count + 1, entered, watch, &report) ||
        watch->local[report.suspect] < 0 || code_of(&report) <= theirs->code)
        return false;
    agent_stuck_fill(out, watch, count + 1, &report);
    out->code = code_of(&report);
    return true;
}

bool agent_stuck_waits(const struct agent *agent, int local_rank)
{
    return agent->stuck && agent->stuck->minds[local_rank].waits;
}

/* The caller frees it. */
char *agent_take_dump(const struct agent *agent, int local_rank)
{
    char *dump = agent->stuck ? agent->stuck->minds[local_rank].dump : NULL;

    if (dump)
        agent->stuck->minds[local_rank].dump = NULL;
    return dump;
}

/* ---- Life ---------------------------------------------------------------------------- */

/* A round begins: drops a look that runs, because its pids are of the previous round. */
void agent_start_stuck(struct agent *agent)
{
    struct stuck_watch *watch = agent->stuck;
    const uint64_t now_ms = ct_now_ms();

    worker_look_cancel(watch->look);
    watch->look = NULL;
    for (uint32_t i = 0; i < agent->options->join.slots; i++)
        forget(&watch->minds[i]);
    watch->unread_ms = 0;
    watch->clock_ms = now_ms;
    watch->wall_ahead_ms = (int64_t)(ct_wall_ns() / 1000000) - (int64_t)now_ms;
    watch->look_ms = now_ms + limit_ms(watch) / STUCK_LOOK_PARTS;
    loop_timer_set(watch->timer, STUCK_PERIOD_MIN_MS);
}

int agent_open_stuck(struct agent *agent, struct ctrun_error *err)
{
    const size_t slots = agent->options->join.slots;
    struct stuck_watch *watch = ct_zalloc(sizeof *watch);

    if (!watch)
        return ct_fail(err, -ENOMEM, "hang timeout: out of memory");
    agent->stuck = watch;
    watch->agent = agent;
    if (!(watch->minds = ct_zalloc_array(slots, sizeof *watch->minds)) ||
        !(watch->ranks = ct_zalloc_array(slots + 1, sizeof *watch->ranks)) ||
        !(watch->local = ct_zalloc_array(slots + 1, sizeof *watch->local)) ||
        !(watch->timer = loop_timer_open(agent->loop, on_time, watch)))
        return ct_fail(err, -ENOMEM, "hang timeout: out of memory");
    return 0;
}

void agent_close_stuck(struct agent *agent)
{
    struct stuck_watch *watch = agent->stuck;

    if (!watch)
        return;
    agent->stuck = NULL;
    worker_look_cancel(watch->look);
    loop_timer_close(watch->timer);
    for (uint32_t i = 0; watch->minds && i < agent->options->join.slots; i++)
        forget(&watch->minds[i]);
    free(watch->minds);
    free(watch->ranks);
    free(watch->local);
    free(watch);
}
