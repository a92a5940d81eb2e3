/* SPDX-License-Identifier: Apache-2.0 */
/* How long the first start and each restart took on this node. Every time is that of an event seen
 * here: a worker that was reaped, a message, an exec that succeeded, a worker's first message to
 * its agent or, on the node of group rank 0, all ranks in the worker store, a step that was
 * reported. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/node/agent_private.h"
#include "agent/node/start_profile.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

static bool is_wanted(const struct agent *agent)
{
    return agent->bill.met != NULL;
}

/* ---- What has been seen -------------------------------------------------------------- */

/* The store is watched, and all ranks have connected there. */
static bool has_met(struct bill_watch *watch)
{
    uint64_t count;

    watch->has_met |= read(loop_watch_fd(watch->met), &count, sizeof count) > 0;
    return watch->has_met;
}

/* *rank, unless it is NULL: the last rank that connected, -1 if it is not of this node. The store
 * is asked only when the answer may be new: a stop waits for it. */
static struct agent_store_marks look_at_store(struct agent *agent, int *rank)
{
    const struct agent_options *options = agent->options;
    const int count = rank ? worker_group_count(agent->group) : 0;
    pid_t *pids = count > 0 ? ct_zalloc_array((size_t)count, sizeof *pids) : NULL;
    struct agent_store_marks marks = {.last = -1};

    for (int i = 0; pids && i < count; i++)
        pids[i] = worker_group_worker(agent->group, i)->pid;
    if (has_met(&agent->bill) && options->look_at_store)
        options->look_at_store(options->context, agent->store, pids, pids ? count : 0,
                               &marks);
    if (rank)
        *rank = marks.last >= 0 ? worker_group_worker(agent->group, marks.last)->rank
                                : -1;
    free(pids);
    return marks;
}

/* According to its first message to us; 0: none has come. */
static uint64_t import_end(const struct worker *worker)
{
    return bill_import_end(worker->hello_ms, worker->first_step_ms);
}

static uint64_t init_end(const struct worker *worker)
{
    return worker->joined_ms;
}

/* When the last of all workers here had come so far; false: not all have. */
static bool find_last(const struct agent *agent,
                      uint64_t (*end_of)(const struct worker *worker), uint64_t *at_ms,
                      int *rank)
{
    *at_ms = 0;
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);
        const uint64_t end_ms = end_of(worker);

        if (end_ms == 0)
            return false;
        if (end_ms < *at_ms)
            continue;
        *at_ms = end_ms;
        *rank = worker->rank;
    }
    return true;
}

/* The workers here that have made a step: how many, when the last of them did, and the lowest number
 * of a first step. */
struct first_steps {
    int count;
    uint64_t at_ms;
    int rank;
    int64_t lowest; /* -1: not known */
};

/* Those that the workers have reported; or of_optimizers of torch, whose steps have no number. */
static struct first_steps find_steps(const struct agent *agent, bool of_optimizers)
{
    struct first_steps found = {.rank = -1, .lowest = -1};

    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);
        const uint64_t at_ms = of_optimizers ? worker->optimizer_ms
                                             : worker->first_step_ms;

        if (at_ms == 0)
            continue;
        if (!of_optimizers && (found.lowest < 0 || worker->first_step < found.lowest))
            found.lowest = worker->first_step;
        if (at_ms >= found.at_ms) {
            found.at_ms = at_ms;
            found.rank = worker->rank;
        }
        found.count++;
    }
    return found;
}

/* Steps that the program reports count rather than those of its optimizer. */
static struct first_steps find_first_steps(const struct agent *agent)
{
    const struct first_steps reported = find_steps(agent, false);

    return reported.count > 0 || agent->bill.steppers > 0 ? reported
                                                          : find_steps(agent, true);
}

/* The first start may be billed before the steps of a program are reported: so this is called when
 * its round ends, too. */
static void note_steppers(struct agent *agent)
{
    const int reported = find_steps(agent, false).count;
    const int optimizers = find_steps(agent, true).count;

    if (reported > agent->bill.steppers)
        agent->bill.steppers = reported;
    if (optimizers > agent->bill.optimizers)
        agent->bill.optimizers = optimizers;
}

int64_t agent_last_step(const struct agent *agent)
{
    int64_t last = -1;

    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (worker_group_worker(agent->group, i)->step > last)
            last = worker_group_worker(agent->group, i)->step;
    return last;
}

/* When the worker failed, as far as that is known: from an error file, or the last step of a stuck
 * rank; else when the failure was seen, by the reaper or now. */
static uint64_t find_failure(const struct agent *agent, bool *is_dated)
{
    const struct ct_failure *failure = &agent->failure;
    const int64_t local = (int64_t)failure->rank - agent->start.rank_base;
    const uint64_t now_ms = ct_now_ms();
    const struct worker *worker = local >= 0 && local < worker_group_count(agent->group)
                                      ? worker_group_worker(agent->group, (int)local)
                                      : NULL;
    uint64_t at_ms = failure->happened_ms;

    if (failure->cause == CT_CAUSE_HANG && worker)
        at_ms = worker->stepped_ms;
    if (failure->cause == CT_CAUSE_NONE || at_ms == 0 || at_ms > now_ms ||
        failure->generation != agent->start.generation)
        at_ms = now_ms;
    *is_dated = at_ms < now_ms &&
                (failure->cause == CT_CAUSE_HANG || *failure->error_file);
    return at_ms;
}

/* ---- The end of a bill --------------------------------------------------------------- */

static void emit(const struct agent_bill *of, const struct bill_sum *sum)
{
    uint8_t json[1024]; /* eight parts have less than half of it */
    struct ct_writer out;
    struct ct_event event;

    ct_event_begin(&event, "bill");
    ct_event_str(&event, "of", bill_of_name(of->of));
    ct_event_int(&event, "generation", (int64_t)of->generation);
    ct_event_int(&event, "restart_count", of->restart_count);
    ct_event_int(&event, "total_ms", (int64_t)sum->total_ms);
    ct_event_int(&event, "is_whole", of->is_whole);
    ct_writer_init(&out, json, sizeof json);
    bill_write_parts(&out, sum);
    ct_write_u8(&out, 0);
    ct_event_raw(&event, "parts", ct_write_end(&out) < 0 ? "[]" : (const char *)json);
    ct_writer_init(&out, json, sizeof json);
    bill_write_phases(&out, sum->unknown);
    ct_write_u8(&out, 0);
    ct_event_raw(&event, "unknown", ct_write_end(&out) < 0 ? "[]" : (const char *)json);
    if (of->lost_steps >= 0)
        ct_event_int(&event, "lost_steps", of->lost_steps);
    ct_event_end(&event);
}

/* The last request to the store counts as the end of init only when it came before the first step:
 * it is not known which later requests belong to init. */
static void take_marks(struct agent *agent)
{
    struct bill_watch *watch = &agent->bill;
    struct bill *bill = &watch->out.bill;
    int met_rank = -1;
    const struct agent_store_marks store = look_at_store(agent, &met_rank);
    const struct first_steps steps = find_first_steps(agent);
    uint64_t at_ms;
    int rank;

    watch->out.lost_steps = bill_lost_steps(watch->last_step, steps.lowest);
    if (steps.count > 0)
        bill_end_phase(bill, BILL_FIRST_STEP, steps.at_ms, steps.rank);
    if (store.met_ms > 0 && steps.count > 0 && store.asked_ms >= store.met_ms &&
        store.asked_ms <= steps.at_ms)
        bill_end_phase(bill, BILL_INIT, store.asked_ms, -1);
    else if (steps.count > 0 && find_last(agent, init_end, &at_ms, &rank) &&
             at_ms <= steps.at_ms)
        bill_end_phase(bill, BILL_INIT, at_ms, rank);
    if (store.met_ms > 0)
        bill_end_phase(bill, BILL_IMPORT, store.met_ms, met_rank);
    else if (find_last(agent, import_end, &at_ms, &rank))
        bill_end_phase(bill, BILL_IMPORT, at_ms, rank);
    watch->is_by_store |= store.met_ms > 0;
    note_steppers(agent);
}

/* The start of each worker, owned by the caller; NULL without memory. */
static struct bill_rank *read_ranks(const struct agent *agent)
{
    const int count = worker_group_count(agent->group);
    struct bill_rank *ranks = ct_zalloc_array((size_t)count, sizeof *ranks);

    for (int i = 0; ranks && i < count; i++)
        start_profile_read(&ranks[i], worker_group_worker(agent->group, i));
    return ranks;
}

void agent_send_bill(struct agent *agent, const struct agent_bill *of)
{
    struct bill_sum sum;

    bill_add_up(&sum, &of->bill);
    emit(of, &sum);
    agent->options->on_bill(agent->options->context, of);
}

static void close_bill(struct agent *agent)
{
    struct bill_watch *watch = &agent->bill;
    struct bill_rank *ranks;
    unsigned known;

    watch->state = BILL_IS_DONE;
    take_marks(agent);
    known = bill_known(&watch->out.bill);
    watch->out.is_whole = (watch->shown & ~known) == 0;
    watch->shown |= known >> BILL_START << BILL_START;
    ranks = watch->out.of == BILL_OF_START ? read_ranks(agent) : NULL;
    watch->out.ranks = ranks;
    watch->out.rank_count = ranks ? worker_group_count(agent->group) : 0;
    agent_send_bill(agent, &watch->out);
    watch->out.ranks = NULL;
    free(ranks);
}

/* True when all phases are known whose ends earlier rounds have shown: a phase that the program
 * never shows is not waited for. The first start ends with its first steps, or else with its
 * round. */
static bool is_due(struct agent *agent)
{
    const struct bill_watch *watch = &agent->bill;
    const int most = watch->steppers > 0 ? watch->steppers : watch->optimizers;
    const int expected = watch->out.of == BILL_OF_START
                             ? worker_group_count(agent->group)
                             : most;
    uint64_t at_ms;
    int rank;

    if (expected > 0)
        return find_first_steps(agent).count >= expected;
    if (!(watch->shown & 1u << BILL_IMPORT))
        return true;
    return watch->is_by_store ? look_at_store(agent, NULL).met_ms > 0
                              : find_last(agent, import_end, &at_ms, &rank);
}

void agent_on_start_mark(void *context, pid_t pid, enum start_mark mark,
                         const char *names)
{
    struct agent *agent = context;

    if (!worker_group_set_mark(agent->group, pid, mark))
        return;
    if (mark == START_STEPPED && *names)
        worker_group_learn(agent->group, names);
    agent_bill_look(agent);
}

void agent_bill_look(struct agent *agent)
{
    const struct bill_watch *watch = &agent->bill;

    if (watch->state == BILL_IS_STARTED && agent->state == AGENT_RUNNING &&
        bill_known(&watch->out.bill) & 1u << BILL_START && is_due(agent))
        close_bill(agent);
}

/* ---- Its beginning, and what comes in between ---------------------------------------- */

static void begin(struct agent *agent)
{
    struct bill_watch *watch = &agent->bill;
    bool is_dated;
    const uint64_t at_ms = find_failure(agent, &is_dated);

    watch->state = BILL_IS_STOPPED;
    watch->last_step = -1;
    watch->out = (struct agent_bill){.of = BILL_OF_RESTART};
    bill_begin(&watch->out.bill, is_dated ? BILL_DETECT : BILL_DECIDE, at_ms);
    if (is_dated)
        bill_end_phase(&watch->out.bill, BILL_DETECT, ct_now_ms(), -1);
}

void agent_bill_stop(struct agent *agent, bool is_end)
{
    if (!is_wanted(agent))
        return;
    if (agent->bill.state == BILL_IS_STARTED)
        close_bill(agent);
    note_steppers(agent);
    if (!is_end && agent->bill.state == BILL_IS_DONE)
        begin(agent);
}

static void meet(struct agent *agent)
{
    struct bill_watch *watch = &agent->bill;

    (void)has_met(watch); /* of an earlier round */
    watch->has_met = false;
    watch->state = BILL_IS_STARTED;
    watch->out.generation = agent->start.generation;
    watch->out.restart_count = agent->start.restart_count;
}

/* The watch may begin after the workers' start: they connect to the store much later. */
static void watch_store(struct agent *agent)
{
    const struct agent_options *options = agent->options;

    if (agent->has_store && agent->start.group_rank == 0 && options->watch_store)
        options->watch_store(options->context, agent->store, agent->start.world_size,
                             loop_watch_fd(agent->bill.met));
}

void agent_bill_end_phase(struct agent *agent, enum bill_phase phase)
{
    struct bill_watch *watch = &agent->bill;

    if (watch->state != (phase == BILL_START ? BILL_IS_STARTED : BILL_IS_STOPPED) ||
        !is_wanted(agent))
        return;
    bill_end_phase(&watch->out.bill, phase, ct_now_ms(), -1);
    if (phase == BILL_STOP)
        watch->last_step = agent_last_step(agent);
    else if (phase == BILL_MEET)
        meet(agent);
    else if (phase == BILL_START) {
        watch_store(agent);
        agent_bill_look(agent);
    }
}

static void on_met(void *context, unsigned events)
{
    struct agent *agent = context;

    (void)events;
    (void)has_met(&agent->bill);
    agent_bill_look(agent);
}

int agent_open_bill(struct agent *agent, struct ctrun_error *err)
{
    struct bill_watch *watch = &agent->bill;
    int fd;

    if (!agent->options->on_bill)
        return 0;
    if ((fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return ct_fail(err, -errno, "eventfd: %s", strerror(errno));
    if (!(watch->met = loop_watch_open(agent->loop, fd, on_met, agent)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    loop_watch_for(watch->met, LOOP_READ);
    watch->state = BILL_IS_STOPPED;
    watch->last_step = -1;
    watch->out = (struct agent_bill){.of = BILL_OF_START, .lost_steps = -1};
    bill_begin(&watch->out.bill, BILL_MEET, agent->born_ms);
    return 0;
}

void agent_close_bill(struct agent *agent)
{
    loop_watch_close(agent->bill.met);
}
