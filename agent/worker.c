/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/aside.h"
#include "agent/cause.h"
#include "agent/limits.h"
#include "agent/unkillable.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

void agent_worker_plan_deinit(struct agent_worker_plan *plan)
{
    for (char **arg = plan->argv; arg && *arg; arg++)
        free(*arg);
    free(plan->argv);
    ct_env_deinit(&plan->env);
    free(plan->out_file);
    free(plan->err_file);
    free(plan->error_file);
    free(plan->prefix);
    free(plan->filtered_out_file);
    free(plan->filtered_err_file);
    memset(plan, 0, sizeof *plan);
}

/* The facts that every failure of this worker has. */
static void begin_failure(struct worker *worker, const struct worker_place *place)
{
    struct ct_failure *failure = &worker->failure;

    memset(failure, 0, sizeof *failure);
    failure->generation = place->start->generation;
    failure->rank = worker->rank;
    failure->local_rank = worker->local_rank;
    failure->node_rank = (int32_t)place->start->group_rank;
    failure->pid = worker->pid;
    failure->restart_count = place->start->restart_count;
    failure->wall_ns = ct_wall_ns();
    failure->uptime_ms = worker->started_ms ? ct_now_ms() - worker->started_ms : 0;
    failure->step = worker->step;
    failure->is_early = failure->uptime_ms < place->options->min_uptime_ms;
    (void)ct_copy(failure->host, sizeof failure->host, place->options->hello.host);
}

static void emit_started(const struct worker *worker, const struct worker_place *place)
{
    struct ct_event event;

    ct_event_begin(&event, "worker_started");
    ct_event_int(&event, "generation", (int64_t)place->start->generation);
    ct_event_int(&event, "rank", worker->rank);
    ct_event_int(&event, "local_rank", worker->local_rank);
    ct_event_int(&event, "worker_pid", worker->pid);
    ct_event_end(&event);
    if (place->options->on_worker_started)
        place->options->on_worker_started(place->options->context, worker->local_rank,
                                          worker->pid);
}

static void emit_ended(const struct worker *worker, const struct worker_place *place)
{
    const struct ct_failure *failure = &worker->failure;
    struct ct_event event;

    ct_event_begin(&event, "worker_ended");
    ct_event_int(&event, "generation", (int64_t)failure->generation);
    ct_event_int(&event, "rank", failure->rank);
    ct_event_int(&event, "local_rank", failure->local_rank);
    ct_event_int(&event, "worker_pid", failure->pid);
    ct_event_str(&event, "cause", ct_cause_name(failure->cause));
    ct_event_int(&event, "code", failure->code);
    ct_event_int(&event, "uptime_ms", (int64_t)failure->uptime_ms);
    ct_event_int(&event, "step", failure->step);
    ct_event_end(&event);
    ct_info("worker ended rank=%d pid=%d cause=%s code=%d generation=%llu",
            failure->rank, failure->pid, ct_cause_name(failure->cause), failure->code,
            (unsigned long long)failure->generation);
    if (place->options->on_worker_ended)
        place->options->on_worker_ended(place->options->context, failure);
}

/* A worker that is alone writes to where we do, and keeps its terminal. Its last words are wanted
 * on other nodes too, if there are any. */
static bool may_inherit(const struct worker_place *place, bool is_err)
{
    const struct agent_options *options = place->options;

    return options->join.slots == 1 && (options->hello.max_nodes == 1 ||
                                        isatty(is_err ? STDERR_FILENO : STDOUT_FILENO));
}

static int open_stream(struct worker *worker, const struct worker_place *place,
                       bool is_err, int *child_fd, struct ctrun_error *err)
{
    const struct agent_worker_plan *plan = &worker->plan;
    const struct output_options options = {
        .loop = place->loop,
        .files = place->files,
        .console = is_err ? place->console_err : place->console_out,
        .chorus = is_err ? place->chorus_err : place->chorus_out,
        .local_rank = worker->local_rank,
        .kind = is_err ? plan->err : plan->out,
        .is_inherited = may_inherit(place, is_err),
        .file = is_err ? plan->err_file : plan->out_file,
        .filtered_file = is_err ? plan->filtered_err_file : plan->filtered_out_file,
        .filters = is_err ? place->options->err_filters : place->options->out_filters,
        .prefix = plan->prefix,
        .file_max_bytes = place->options->log_max_bytes,
        .file_keep = place->options->log_keep,
        .pipe_bytes = place->options->join.slots <= OUTPUT_PIPE_WORKERS_MAX
                          ? OUTPUT_PIPE_BYTES
                          : 0,
    };

    return output_open(is_err ? &worker->err : &worker->out, &options, child_fd, err);
}

/* Streams, environment, process. */
static int start_planned(struct worker *worker, const struct worker_place *place,
                         struct ctrun_error *err)
{
    struct spawn_request request = {
        .argv = worker->plan.argv, .out = -1, .err = -1, .bind = &worker->plan.bind};
    int rc;

    if ((rc = open_stream(worker, place, false, &request.out, err)) == 0)
        rc = open_stream(worker, place, true, &request.err, err);
    if (rc == 0 &&
        ((rc = ct_env_set(&worker->plan.env, CT_ENV_AGENT_SOCKET, place->socket)) < 0 ||
         (rc = ct_env_setf(&worker->plan.env, CT_ENV_GENERATION, "%llu",
                           (unsigned long long)place->start->generation)) < 0))
        (void)ct_fail(err, rc, "environment: %s", strerror(-rc));
    if (rc == 0) {
        request.env = worker->plan.env.list;
        rc = spawn_start(&worker->spawn, place->batch, &request, err);
    }
    if (request.out >= 0)
        close(request.out);
    if (request.err >= 0)
        close(request.err);
    return rc;
}

/* It never ran. */
static int fail_start(struct worker *worker, const struct worker_place *place,
                      int cause, const struct ctrun_error *err)
{
    worker->state = WORKER_ENDED;
    worker->pid = 0;
    begin_failure(worker, place);
    worker->failure.cause = (uint8_t)cause;
    worker->failure.code = -err->code;
    (void)ct_copy(worker->failure.text, sizeof worker->failure.text, err->text);
    emit_ended(worker, place);
    return err->code;
}

int worker_plan(struct worker *worker, const struct worker_place *place, int local_rank)
{
    const struct agent_options *options = place->options;
    struct ctrun_error err = {0};
    int rc;

    worker->local_rank = local_rank;
    worker->rank = (int)place->start->rank_base + local_rank;
    worker->step = -1;
    rc = options->plan(options->context, place->start, local_rank, &worker->plan, &err);
    if (rc == 0)
        return 0;
    err.code = rc;
    return fail_start(worker, place, CT_CAUSE_AGENT, &err);
}

int worker_start(struct worker *worker, const struct worker_place *place)
{
    struct ctrun_error err = {0};
    const int rc = start_planned(worker, place, &err);

    if (rc < 0) {
        err.code = rc;
        return fail_start(worker, place, CT_CAUSE_AGENT, &err);
    }
    worker->state = WORKER_RUNNING;
    worker->pid = worker->spawn.pid;
    worker->started_ms = ct_now_ms();
    return 0;
}

int worker_confirm(struct worker *worker, const struct worker_place *place)
{
    struct ctrun_error err = {0};

    if (spawn_check(&worker->spawn, place->batch, &err) < 0)
        return fail_start(worker, place, CT_CAUSE_EXEC, &err);
    emit_started(worker, place);
    return 0;
}

/* The last lines: of stderr, or of stdout when it was silent. */
static void write_text(struct worker *worker)
{
    char *text = worker->failure.text;
    size_t size = sizeof worker->failure.text;
    int used = 0;

    if (worker->timer_signal)
        used = ct_format(text, size, "%s\n", worker->timer_text);
    if (used < 0)
        return;
    if (output_last_lines(worker->err, text + used, size - (size_t)used) == 0)
        (void)output_last_lines(worker->out, text + used, size - (size_t)used);
}

/* Even one that took the signal for a request to end well had its time. */
static void blame_timer(struct worker *worker)
{
    struct ct_failure *failure = &worker->failure;

    if (failure->cause == CT_CAUSE_NONE || failure->cause == CT_CAUSE_STOPPED) {
        failure->cause = CT_CAUSE_SIGNAL;
        failure->code = worker->timer_signal;
    }
    failure->error_file[0] = '\0'; /* the timer is the cause, not its last words */
}

/* It may have left its own words; launcher/ reads them. */
static void find_error_file(struct worker *worker)
{
    struct ct_failure *failure = &worker->failure;

    if (worker->plan.error_file &&
        aside_is_file(worker->plan.error_file, WORKER_LOOK_MS))
        (void)ct_copy(failure->error_file, sizeof failure->error_file,
                      worker->plan.error_file);
}

void worker_end(struct worker *worker, const struct worker_place *place,
                struct evidence death)
{
    const struct cause_evidence evidence = {
        .status = death.status,
        .stop_signal = worker->stop_signal,
        .is_oom_proven = *death.oom_proof != '\0',
    };

    worker->state = WORKER_ENDED;
    output_drain(worker->out);
    output_drain(worker->err);
    begin_failure(worker, place);
    cause_classify(&evidence, &worker->failure);
    if (worker->failure.cause != CT_CAUSE_NONE)
        find_error_file(worker);
    if (worker->timer_signal)
        blame_timer(worker);
    if (worker->failure.cause != CT_CAUSE_NONE)
        write_text(worker);
    if (worker->failure.cause != CT_CAUSE_NONE && place->options->describe)
        place->options->describe(place->options->context, &worker->failure);
    death.program = worker->plan.argv[0];
    death.started_ms = worker->started_ms;
    death.has_core_raised = worker->plan.bind.raises_core;
    if (!worker->timer_signal)
        evidence_add(&worker->failure, &death);
    emit_ended(worker, place);
}

void worker_give_up(struct worker *worker, const struct worker_place *place)
{
    char where[UNKILLABLE_WHERE_MAX];

    unkillable_describe(where, worker->pid);
    worker->state = WORKER_ENDED;
    begin_failure(worker, place);
    worker->failure.cause = CT_CAUSE_UNKILLABLE;
    worker->failure.code = SIGKILL;
    (void)ct_format(worker->failure.text, sizeof worker->failure.text,
                    "pid %d did not die after SIGKILL: %s", worker->pid, where);
    unkillable_explain(&worker->failure, worker->pid);
    emit_ended(worker, place);
}

void worker_expire(struct worker *worker, const char *scope, int signal)
{
    const char *name = sigabbrev_np(signal);
    struct ct_event event;

    if (worker->timer_signal == 0) { /* the first one says it */
        worker->timer_signal = signal;
        (void)ct_format(worker->timer_text, sizeof worker->timer_text,
                        "timer expired: scope %.180s; sent %s%s", scope,
                        name ? "SIG" : "signal ", name ? name : "?"); /* cut is fine */
    }
    ct_event_begin(&event, "timer_expired");
    ct_event_int(&event, "rank", worker->rank);
    ct_event_int(&event, "local_rank", worker->local_rank);
    ct_event_int(&event, "worker_pid", worker->pid);
    ct_event_int(&event, "signal", signal);
    ct_event_str(&event, "scope", scope);
    ct_event_end(&event);
    (void)kill(worker->pid, signal);
}

void worker_signal(struct worker *worker, int signal)
{
    worker->stop_signal = signal;
    (void)kill(-worker->pid, signal); /* its own group since before execve() */
    if (signal != SIGKILL)
        (void)kill(-worker->pid, SIGCONT);
}

void worker_deinit(struct worker *worker)
{
    output_finish(worker->out);
    output_finish(worker->err);
    agent_worker_plan_deinit(&worker->plan);
    memset(worker, 0, sizeof *worker);
}
