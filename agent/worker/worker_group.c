/* SPDX-License-Identifier: Apache-2.0 */
/* The start of the workers, signals to them, and the facts that are known about them. */
#include "agent/worker/worker_group.h"

#include <errno.h>
#include <signal.h>

#include "agent/control/worker_socket.h"
#include "agent/loop/limits.h"
#include "agent/process/code_pages.h"
#include "agent/process/file_limit.h"
#include "agent/process/signal_effect.h"
#include "agent/worker/worker_group_private.h"
#include "agent/worker/worker_metrics.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    VICTIMS_SHOWN = 4 /* the others are counted */
};

/* Written once before any child runs: calloc() leaves pages that were only read; the first write
 * exchanges such a page, and interrupts each processor that runs a child in our memory. */
static struct worker *create_workers(int count)
{
    struct worker *workers = ct_realloc_array(NULL, (size_t)count, sizeof *workers);

    return workers ? memset(workers, 0, (size_t)count * sizeof *workers) : NULL;
}

/* The start is over: the files that were read for it are not needed any more. */
static void on_settled(void *context)
{
    (void)context;
    code_pages_drop(false);
}

static void on_template(void *context);

int worker_group_create(struct worker_group **out,
                        const struct worker_group_options *options)
{
    struct worker_group *group = ct_zalloc(sizeof *group);

    if (!group)
        return -ENOMEM;
    group->options = *options;
    group->count = (int)options->join->slots;
    group->workers = create_workers(group->count);
    group->timer = loop_timer_open(options->loop, worker_group_on_timer, group);
    group->memory_timer = loop_timer_open(options->loop, worker_group_on_memory, group);
    group->restart_timer = loop_timer_open(options->loop, worker_group_on_timer, group);
    group->settled_timer = loop_timer_open(options->loop, on_settled, group);
    if (logfile_writer_create(&group->files, options->loop) < 0)
        group->files = NULL;
    group->place = (struct worker_place){
        .options = options->workers,
        .join = options->join,
        .host = options->host,
        .is_one_node = options->is_one_node,
        .start = &group->start,
        .socket = options->socket,
        .recorder = options->recorder,
        .loop = options->loop,
        .files = group->files,
        .console_out = options->console_out,
        .console_err = options->console_err,
        .dedup_out = options->dedup_out,
        .dedup_err = options->dedup_err,
    };
    if (!group->workers || !group->timer || !group->memory_timer ||
        !group->restart_timer || !group->settled_timer || !group->files) {
        worker_group_destroy(group);
        return -ENOMEM;
    }
    if (options->workers->template &&
        !(group->place.template = template_create(
              options->loop, options->workers->template, on_template, group))) {
        worker_group_destroy(group);
        return -ENOMEM;
    }
    shm_watch_init(&group->shm);
    oom_counter_init(&group->cgroup, "/proc/self/cgroup", "/sys/fs/cgroup");
    *out = group;
    return 0;
}

static void clear(struct worker_group *group)
{
    for (int i = 0; group->workers && i < group->count; i++)
        worker_deinit(&group->workers[i]);
    if (group->restart_timer) /* not while a half-made group is destroyed */
        loop_timer_stop(group->restart_timer);
    group->is_waiting = false;
    group->has_metrics = group->has_world = group->is_left_alone = false;
    memset(&group->policy, 0, sizeof group->policy);
    memset(&group->orphans, 0, sizeof group->orphans);
}

void worker_group_destroy(struct worker_group *group)
{
    if (!group)
        return;
    clear(group);
    template_destroy(group->place.template);
    logfile_writer_destroy(group->files); /* waits for data that is not written yet */
    free(group->workers);
    shm_watch_deinit(&group->shm);
    loop_timer_close(group->timer);
    loop_timer_close(group->memory_timer);
    loop_timer_close(group->settled_timer);
    loop_timer_close(group->restart_timer);
    free(group);
}

void worker_group_reset(struct worker_group *group, const struct ct_start *start)
{
    clear(group);
    group->start = *start;
}

/* Only for workers that start from now on: running workers have the old address in their
 * environment. */
void worker_group_move_store(struct worker_group *group, const struct ct_start *start)
{
    group->start.master_port = start->master_port;
    memcpy(group->start.master_addr, start->master_addr,
           sizeof group->start.master_addr);
}

/* Starts all workers side by side. Returns the first that failed; -1: all run. All are started
 * before the first is waited for; when one fails, the workers that were started run on, and are
 * stopped with the round. */
static int start_all(struct worker_group *group)
{
    struct spawn_batch batch;
    int failed = -1;

    worker_open_batch(&batch, &group->place, group->count);
    group->place.batch = &batch;
    for (int i = 0; i < group->count; i++)
        group->workers[i].is_new = group->start.is_new;
    for (int i = 0; i < group->count && failed < 0; i++)
        if (worker_plan(&group->workers[i], &group->place, i) < 0 ||
            worker_start(&group->workers[i], &group->place) < 0)
            failed = i;
    worker_wait_batch(&batch, &group->place);
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING &&
            worker_confirm(&group->workers[i], &group->place) < 0 && failed < 0)
            failed = i;
    spawn_end(&batch);
    group->place.batch = NULL;
    return failed;
}

/* The callback comes last: it may stop the group, or start the next round. */
static void start_round(struct worker_group *group)
{
    char proof[sizeof group->oom_proof];
    int failed;

    group->oom_proof[0] = '\0';
    (void)oom_counter_has_oom_killed(&group->cgroup, proof,
                                     sizeof proof); /* counts from here */
    loop_timer_set(group->memory_timer, MEMORY_FIRST_MS);
    if (group->start.restart_count == 0) /* a restart keeps these files for the next */
        loop_timer_set(group->settled_timer, AGENT_START_MS);
    failed = start_all(group);
    if (failed >= 0)
        group->options.on_failure(group->options.context,
                                  &group->workers[failed].failure);
    else
        group->options.on_started(group->options.context);
}

/* The template is ready, lost or refused: the round has waited for nothing else. A stop meanwhile
 * has cleared is_waiting. */
static void on_template(void *context)
{
    struct worker_group *group = context;

    if (!group->is_waiting)
        return;
    group->is_waiting = false;
    start_round(group);
}

void worker_group_start(struct worker_group *group, const struct ct_start *start)
{
    worker_group_reset(group, start);
    if (group->place.template)
        template_revive(group->place.template);
    if (template_is_starting(group->place.template))
        group->is_waiting = true;
    else
        start_round(group);
}

/* A worker that is RUNNING has not been reaped: its pid is still its own, even if it is dead
 * already. */
void worker_group_signal(struct worker_group *group, int signal)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING)
            (void)worker_pass_signal(&group->workers[i], signal);
}

void worker_group_resize(struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        worker_resize(&group->workers[i]);
}

int worker_group_signal_rank(struct worker_group *group, int rank, int signal)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING && group->workers[i].rank == rank)
            return worker_pass_signal(&group->workers[i], signal);
    return -ESRCH;
}

int worker_group_inject(struct worker_group *group, const struct ct_fault *fault,
                        struct ctrun_error *err)
{
    if (group->policy.phase != POLICY_IDLE)
        return ct_fail(err, -ESRCH, "the workers are being stopped");
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        int rc;

        if (worker->state != WORKER_RUNNING || worker->rank != fault->target)
            continue;
        if (fault->kind == CT_FAULT_STOP && worker->chaos.until_ms)
            return ct_fail(err, -EALREADY, "rank %d is stopped already (plan line %u)",
                           worker->rank, worker->chaos.line);
        rc = worker_inject(worker, fault);
        return rc < 0 ? ct_fail(err, rc, "pid %d: %s", (int)worker->pid, strerror(-rc))
                      : 0;
    }
    return ct_fail(err, -ESRCH, "rank %d is not running", fault->target);
}

uint64_t worker_group_resume(struct worker_group *group, uint64_t now_ms,
                             void (*on_continued)(void *context,
                                                  const struct worker *worker),
                             void *context)
{
    uint64_t next_ms = 0;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (worker->state != WORKER_RUNNING || worker->chaos.until_ms == 0)
            continue;
        if (worker->chaos.until_ms <= now_ms) {
            worker_resume(worker);
            on_continued(context, worker);
        } else if (next_ms == 0 || worker->chaos.until_ms < next_ms) {
            next_ms = worker->chaos.until_ms;
        }
    }
    return next_ms;
}

int worker_group_set_full(struct worker_group *group, bool is_full)
{
    return logfile_writer_set_full(group->files, is_full);
}

int worker_group_set_quota(struct worker_group *group, bool is_set)
{
    template_keep(group->place.template, &group->keep);
    if (is_set)
        return file_limit_set(&group->keep);
    file_limit_lift(&group->keep);
    return 0;
}

int worker_group_list_victims(const struct worker_group *group, int rank, int signal,
                              char list[WORKER_GROUP_VICTIMS_MAX_BYTES])
{
    int count = 0;

    *list = '\0';
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];

        if (worker->state == WORKER_RUNNING && (rank < 0 || worker->rank == rank) &&
            signal_effect_is_fatal(worker->pid, signal) && count++ < VICTIMS_SHOWN)
            (void)ct_append_item(list, WORKER_GROUP_VICTIMS_MAX_BYTES, ", ",
                                 "rank %d (pid %d)", worker->rank, (int)worker->pid);
    }
    if (count > VICTIMS_SHOWN)
        (void)ct_append(list, WORKER_GROUP_VICTIMS_MAX_BYTES, " and %d more",
                        count - VICTIMS_SHOWN);
    return count;
}

/* ---- Facts ------------------------------------------------------------------------------ */

/* NULL: the message is of another round, or of no worker of this node. */
static struct worker *find_worker(struct worker_group *group, int rank,
                                  uint64_t generation)
{
    const int64_t local = (int64_t)rank - (int64_t)group->start.rank_base;

    return generation == group->start.generation && local >= 0 && local < group->count
               ? &group->workers[local]
               : NULL;
}

void worker_group_set_hello(struct worker_group *group, int rank, uint64_t generation)
{
    struct worker *worker = find_worker(group, rank, generation);

    if (worker && worker->hello_ms == 0)
        worker->hello_ms = ct_now_ms();
}

void worker_group_set_progress(struct worker_group *group, int rank,
                               uint64_t generation,
                               const struct worker_socket_progress *progress)
{
    struct worker *worker = find_worker(group, rank, generation);

    if (!worker)
        return;
    if (worker->state == WORKER_NEW)
        return; /* the start's own code reports that */
    if (progress->step >= 0) {
        if (worker->first_step_ms == 0) {
            worker->first_step = progress->step;
            worker->first_step_ms = progress->step_ms;
        }
        worker->step = progress->step;
        worker->stepped_ms = progress->step_ms;
    }
    worker->waits = progress->waits;
    if (progress->samples && !worker->samples)
        worker->samples = ct_zalloc(sizeof *worker->samples);
    if (progress->samples &&
        worker->samples) /* else memory is short: continue without the samples */
        *worker->samples = *progress->samples;
    group->has_metrics |= worker_metrics_set(&worker->metrics, progress->metrics,
                                             progress->metric_count);
}

bool worker_group_set_mark(struct worker_group *group, pid_t pid, enum start_mark mark)
{
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        uint64_t *at_ms = mark == START_IMPORTED ? &worker->hello_ms
                          : mark == START_JOINED ? &worker->joined_ms
                                                 : &worker->optimizer_ms;

        if (worker->state != WORKER_RUNNING || worker->pid != pid || *at_ms > 0)
            continue;
        *at_ms = ct_now_ms();
        return true;
    }
    return false;
}

void worker_group_learn(struct worker_group *group, const char *names)
{
    if (group->place.template)
        template_learn(group->place.template, names);
}

void worker_group_set_late(struct worker_group *group, int local_rank, double seconds)
{
    const struct ct_metric late = {CT_METRIC_LATE, seconds};

    group->has_metrics |= worker_metrics_set(&group->workers[local_rank].metrics, &late,
                                             1);
}

bool worker_group_get_samples(const struct worker_group *group,
                              const struct ct_failure *failure, struct ct_samples *out)
{
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];

        if (failure->rank < 0 || worker->rank != failure->rank || !worker->samples ||
            failure->generation != group->start.generation)
            continue;
        *out = *worker->samples;
        out->generation = failure->generation;
        out->rank = failure->rank;
        return true;
    }
    return false;
}

bool worker_group_take_metrics(struct worker_group *group, struct ct_metrics *out)
{
    out->generation = group->start.generation;
    out->count = 0;
    if (!group->has_metrics)
        return false;
    for (int i = 0; i < group->count; i++)
        worker_metrics_take(group->workers[i].metrics, group->workers[i].rank, out);
    group->has_metrics = out->count == CT_METRICS_SENT_MAX;
    return out->count > 0;
}

void worker_group_renew_metrics(struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        worker_metrics_renew(group->workers[i].metrics);
    group->has_metrics = true;
}

int64_t worker_group_min_step(const struct worker_group *group)
{
    int64_t min = INT64_MAX;

    for (int i = 0; i < group->count; i++)
        if (group->workers[i].step < min && !group->workers[i].is_lost &&
            !group->workers[i].is_new)
            min = group->workers[i].state == WORKER_NEW ? -1 : group->workers[i].step;
    return min == INT64_MAX ? -1 : min;
}

int worker_group_count(const struct worker_group *group)
{
    return group->count;
}

const struct worker *worker_group_worker(const struct worker_group *group,
                                         int local_rank)
{
    return &group->workers[local_rank];
}

static int copy_failures(const struct worker_group *group, bool want_own,
                         struct ct_failure *out, int max, uint32_t *more)
{
    int count = 0;

    *more = 0;
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];

        if (worker->state != WORKER_ENDED || worker->failure.cause == CT_CAUSE_NONE ||
            worker->is_survived || worker_has_failed(worker) != want_own)
            continue;
        if (count < max)
            out[count++] = worker->failure;
        else
            ++*more;
    }
    return count;
}

void worker_group_set_age(struct ct_failure *failure)
{
    const uint64_t now_ms = ct_now_ms();

    if (failure->happened_ms != 0)
        failure->age_ms = now_ms > failure->happened_ms ? now_ms - failure->happened_ms
                                                        : 1; /* 0: not known */
}

/* Workers that had ended with 0 before they were asked to stop, and before the first failure. */
static int copy_early(const struct worker_group *group, uint64_t until_ms,
                      struct ct_failure *out, int max)
{
    int count = 0;

    for (int i = 0; i < group->count && count < max; i++) {
        const struct worker *worker = &group->workers[i];

        if (worker->state != WORKER_ENDED || worker->failure.cause != CT_CAUSE_NONE ||
            worker->stop_signal || worker->is_spared ||
            worker->failure.happened_ms > until_ms)
            continue;
        out[count] = worker->failure;
        out[count].cause = CT_CAUSE_EARLY;
        worker_group_set_age(&out[count++]);
    }
    return count;
}

int worker_group_get_failures(const struct worker_group *group, struct ct_failure *out,
                              int max, struct ct_more *more)
{
    int count = copy_failures(group, true, out, max, &more->failed);
    uint64_t first_ms = UINT64_MAX;

    for (int i = 0; i < count; i++) {
        worker_group_set_age(&out[i]);
        if (out[i].happened_ms > 0 && out[i].happened_ms < first_ms) /* 0: not known */
            first_ms = out[i].happened_ms;
    }
    count += copy_early(group, first_ms, out + count, max - count);
    return count +
           copy_failures(group, false, out + count, max - count, &more->stopped);
}
