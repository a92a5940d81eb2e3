/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/error_file/error_file_text.h"
#include "agent/loop/blocking_call.h"
#include "agent/postmortem/exit_cause.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/postmortem/interpreter.h"
#include "agent/postmortem/facts.h"
#include "agent/loop/limits.h"
#include "agent/postmortem/traceback.h"
#include "agent/postmortem/unkillable.h"
#include "agent/worker/worker_metrics.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

void worker_find_role(struct ct_role_at *out, const struct worker *worker,
                      const struct ct_join *join, const struct ct_start *start)
{
    ct_role_find(out, &join->roles, join->role, start, (uint32_t)worker->local_rank);
}

void worker_add_role(struct ct_failure *failure, const struct worker *worker,
                     const struct ct_join *join, const struct ct_start *start)
{
    struct ct_role_at role;

    if (join->roles.count == 0)
        return;
    worker_find_role(&role, worker, join, start);
    facts_add(failure, CT_FACT_ROLE, "%s, rank %u of %u", role.name, role.rank,
              role.world_size);
}

/* Where a node has several. */
static void emit_role(struct ct_event *event, const struct worker *worker,
                      const struct worker_place *place)
{
    struct ct_role_at role;

    if (place->join->roles.count == 0)
        return;
    worker_find_role(&role, worker, place->join, place->start);
    ct_event_str(event, "role", role.name);
    ct_event_int(event, "role_rank", role.rank);
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
    failure->may_loop = place->options->min_uptime_ms > 0 &&
                        (failure->step >= 0 ||
                         failure->uptime_ms < place->options->min_uptime_ms);
    (void)ct_copy(failure->host, sizeof failure->host, place->host);
    worker_add_role(failure, worker, place->join, place->start);
}

static void emit_started(const struct worker *worker, const struct worker_place *place)
{
    struct ct_event event;

    ct_event_begin(&event, "worker_started");
    ct_event_int(&event, "generation", (int64_t)place->start->generation);
    ct_event_int(&event, "rank", worker->rank);
    ct_event_int(&event, "local_rank", worker->local_rank);
    ct_event_int(&event, "worker_pid", worker->pid);
    ct_event_str(&event, "start", worker->is_forked ? "fork" : "exec");
    emit_role(&event, worker, place);
    ct_event_end(&event);
    if (place->options->on_worker_started)
        place->options->on_worker_started(place->options->context, worker->local_rank,
                                          worker->pid);
}

static void emit_samples(struct ct_event *event, const struct ct_samples *samples)
{
    char list[CT_SAMPLES_MAX * 21 + 3] = "[";

    if (!samples)
        return;
    for (int i = 0; i < samples->count; i++)
        (void)ct_append(list, sizeof list, "%s%llu", i ? "," : "",
                        (unsigned long long)samples->list[i].id); /* fits */
    (void)ct_append(list, sizeof list, "]");
    ct_event_raw(event, "samples", list);
}

static void emit_ended(const struct worker *worker, const struct worker_place *place)
{
    const struct ct_failure *failure = &worker->failure;
    char metrics[WORKER_METRICS_TEXT_MAX];
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
    if (worker_metrics_format(metrics, worker->metrics) > 0)
        ct_event_raw(&event, "metrics", metrics);
    emit_samples(&event, worker->samples);
    emit_role(&event, worker, place);
    ct_event_end(&event);
    ct_info("worker ended rank=%d pid=%d cause=%s code=%d generation=%llu",
            failure->rank, failure->pid, ct_cause_name(failure->cause), failure->code,
            (unsigned long long)failure->generation);
    if (place->options->on_worker_ended)
        place->options->on_worker_ended(place->options->context, failure);
}

/* A worker that is alone writes to where we do, and keeps its terminal; so does the one that has
 * the terminal to read from, for a prompt is no whole line. Last words are wanted on other nodes
 * too, if there are any. */
static bool may_inherit(const struct worker *worker, const struct worker_place *place,
                        bool is_err)
{
    const struct worker_options *options = place->options;
    const int fd = is_err ? STDERR_FILENO : STDOUT_FILENO;

    if (worker->plan.in == AGENT_INPUT_SOLE && isatty(STDIN_FILENO) && isatty(fd))
        return true;
    return place->join->slots == 1 && options->rate_limit == 0 &&
           (place->is_one_node || isatty(fd));
}

/* Lines that are collapsed are compared: bars and colours would make all of them differ. */
static bool has_terminal(const struct worker_place *place, bool is_err)
{
    return place->options->uses_pty && !place->dedup_out &&
           isatty(is_err ? STDERR_FILENO : STDOUT_FILENO);
}

static int open_throttle(struct worker *worker, const struct worker_place *place,
                         struct ctrun_error *err)
{
    const struct worker_options *options = place->options;

    if (options->rate_limit == 0)
        return 0;
    worker->throttle = throttle_open(place->loop, options->rate_limit,
                                     options->on_left_out, options->context,
                                     worker->rank);
    return worker->throttle ? 0 : ct_fail(err, -ENOMEM, "output: out of memory");
}

/* What becomes descriptor 0; -1: ours does. */
static int open_input(const struct worker *worker, int *child_fd,
                      struct ctrun_error *err)
{
    *child_fd = -1;
    if (worker->plan.in != AGENT_INPUT_NONE)
        return 0;
    *child_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *child_fd >= 0 ? 0
                          : ct_fail(err, -errno, "open /dev/null: %s", strerror(errno));
}

static int open_stream(struct worker *worker, const struct worker_place *place,
                       bool is_err, int *child_fd, struct ctrun_error *err)
{
    const struct agent_worker_plan *plan = &worker->plan;
    const int fd = is_err ? STDERR_FILENO : STDOUT_FILENO;
    const struct output_options options = {
        .loop = place->loop,
        .files = place->files,
        .console = is_err ? place->console_err : place->console_out,
        .console_dedup = is_err ? place->dedup_err : place->dedup_out,
        .throttle = worker->throttle,
        .local_rank = worker->local_rank,
        .kind = is_err ? plan->err : plan->out,
        .is_inherited = may_inherit(worker, place, is_err),
        .terminal_fd = has_terminal(place, is_err) ? fd : -1,
        .file = is_err ? plan->err_file : plan->out_file,
        .filtered_file = is_err ? plan->filtered_err_file : plan->filtered_out_file,
        .filters = is_err ? place->options->err_filters : place->options->out_filters,
        .prefix = plan->prefix,
        .paint = is_err ? plan->err_paint : plan->out_paint,
        .file_max_bytes = place->options->log_max_bytes,
        .file_keep = place->options->log_keep,
        .appends = worker->restarts > 0,
        .pipe_bytes = place->join->slots <= OUTPUT_PIPE_WORKERS_MAX ? OUTPUT_PIPE_BYTES
                                                                    : 0,
    };

    return output_open(is_err ? &worker->err : &worker->out, &options, child_fd, err);
}

/* What it would have without us. Under a number of its own: others are taken here. */
static int pass_pmi(struct worker *worker, int pmi_fd, int *fd, struct ctrun_error *err)
{
    const int copy = fcntl(pmi_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int rc;

    if (copy < 0)
        return ct_fail(err, -errno, "PMI_FD=%d: %s", pmi_fd, strerror(errno));
    *fd = copy;
    rc = ct_env_setf(&worker->plan.env, "PMI_FD", "%d", copy);
    return rc < 0 ? ct_fail(err, rc, "PMI_FD: environment: %s", strerror(-rc)) : 0;
}

/* Streams, environment, process. */
static int start_planned(struct worker *worker, const struct worker_place *place,
                         struct ctrun_error *err)
{
    struct spawn_request request = {.argv = worker->plan.argv,
                                    .in = -1,
                                    .out = -1,
                                    .err = -1,
                                    .bind = &worker->plan.bind,
                                    .may_fork = worker->plan.may_fork};
    int rc;

    if ((rc = open_throttle(worker, place, err)) == 0 &&
        (rc = open_input(worker, &request.in, err)) == 0)
        rc = open_stream(worker, place, false, &request.out, err);
    if (rc == 0)
        rc = open_stream(worker, place, true, &request.err, err);
    if (rc == 0 &&
        ((rc = ct_env_set(&worker->plan.env, CT_ENV_AGENT_SOCKET, place->socket)) < 0 ||
         (!ct_env_find(worker->plan.env.list, CT_ENV_CRASH_REPORT) &&
          (rc = ct_env_set(&worker->plan.env, CT_ENV_CRASH_REPORT, "1")) < 0) ||
         (rc = ct_env_setf(&worker->plan.env, CT_ENV_GENERATION, "%llu",
                           (unsigned long long)place->start->generation)) < 0))
        (void)ct_fail(err, rc, "environment: %s", strerror(-rc));
    if (rc == 0 && place->recorder &&
        (rc = recorder_folder_set_env(place->recorder, &worker->plan.env)) < 0)
        (void)ct_fail(err, rc, "environment: %s", strerror(-rc));
    if (rc == 0 && place->options->pmi_fd > 0)
        rc = pass_pmi(worker, place->options->pmi_fd, &request.extra, err);
    if (rc == 0) {
        request.env = worker->plan.env.list;
        rc = spawn_start(&worker->spawn, place->batch, &request, err);
    }
    if (request.in >= 0)
        close(request.in);
    if (request.out >= 0)
        close(request.out);
    if (request.err >= 0)
        close(request.err);
    if (request.extra > 0)
        close(request.extra);
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
    if (cause != CT_CAUSE_EXEC || err->code != -ENOENT || !worker->plan.argv ||
        !interpreter_explain(&worker->failure, worker->plan.argv[0]))
        failure_hints_add(&worker->failure, false, "");
    emit_ended(worker, place);
    return err->code;
}

int worker_plan(struct worker *worker, const struct worker_place *place, int local_rank)
{
    const struct worker_options *options = place->options;
    struct ctrun_error err = {0};
    int rc;

    worker->local_rank = local_rank;
    worker->rank = (int)place->start->rank_base + local_rank;
    worker->step = -1;
    worker->plan.restarts = worker->restarts;
    rc = options->plan(options->context, place->start, local_rank, &worker->plan, &err);
    if (rc == 0)
        return 0;
    err.code = rc;
    return fail_start(worker, place, CT_CAUSE_AGENT, &err);
}

void worker_open_batch(struct spawn_batch *batch, const struct worker_place *place,
                       int max)
{
    *batch = (struct spawn_batch){.max = max,
                                  .template = template_socket(place->template)};
}

void worker_wait_batch(struct spawn_batch *batch, const struct worker_place *place)
{
    spawn_wait(batch);
    if (*batch->why)
        template_refuse(place->template, batch->why);
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
    worker->started_ms = ct_now_ms();
    return 0;
}

int worker_confirm(struct worker *worker, const struct worker_place *place)
{
    struct ctrun_error err = {0};

    if (spawn_check(&worker->spawn, place->batch, &err) < 0)
        return fail_start(worker, place, CT_CAUSE_EXEC, &err);
    worker->pid = spawn_pid(&worker->spawn, place->batch);
    worker->is_forked = spawn_is_forked(&worker->spawn, place->batch);
    emit_started(worker, place);
    return 0;
}

/* A traceback is why an uncaught exception ended it, however much others wrote after it. One that
 * ends in another way may have got over it, unless it was the last it said. */
static bool find_traceback(const struct worker *worker, char *dst)
{
    const struct ct_failure *failure = &worker->failure;
    const bool is_uncaught = (failure->cause == CT_CAUSE_EXIT && failure->code == 1) ||
                             (failure->cause == CT_CAUSE_SIGNAL &&
                              failure->code == SIGABRT);
    const size_t after_max = is_uncaught ? SIZE_MAX : 0;

    return failure->cause != CT_CAUSE_STOPPED &&
           (output_traceback(worker->err, after_max, dst) ||
            output_traceback(worker->out, after_max, dst));
}

/* The end of a longer text matters. */
static void set_text(struct ct_failure *failure, const char *text)
{
    const size_t length = strlen(text);

    if (length >= sizeof failure->text)
        text += length - sizeof failure->text + 1;
    (void)ct_copy(failure->text, sizeof failure->text, text);
}

/* What its output says: its last traceback, else its last lines. */
static void explain_by_output(struct worker *worker, const char *last_lines)
{
    struct ct_failure *failure = &worker->failure;
    char traceback[TRACEBACK_MAX_BYTES];

    if (worker->timer_signal) {
        (void)ct_format(failure->text, sizeof failure->text, "%s\n%s",
                        worker->timer_text, last_lines);
    } else if (find_traceback(worker, traceback)) {
        set_text(failure, traceback);
        traceback_explain(failure, traceback, NULL);
    } else {
        set_text(failure, last_lines);
        if (failure->cause == CT_CAUSE_EXIT && failure->code == 1)
            traceback_explain(failure, last_lines, NULL); /* a SyntaxError */
    }
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

/* It may have left its own words. Returns when, or 0. */
static uint64_t find_error_file(struct worker *worker)
{
    struct ct_failure *failure = &worker->failure;
    struct blocking_file file = worker->look;

    if (!file.path && worker->plan.error_file) {
        file.path = worker->plan.error_file;
        blocking_call_find_files(&file, 1, WORKER_LOOK_MS);
    }
    if (!file.is_there)
        return 0;
    (void)ct_copy(failure->error_file, sizeof failure->error_file, file.path);
    return file.written_ns;
}

/* Its error file knows best; without one, what it wrote. */
static void explain(struct worker *worker, const struct worker_place *place,
                    char *last_lines, size_t size)
{
    struct ct_failure *failure = &worker->failure;

    /* Of stderr, or of stdout when that was silent. */
    if (output_last_lines(worker->err, last_lines, size) == 0)
        (void)output_last_lines(worker->out, last_lines, size);
    failure->local_rank += place->options->local_id;
    if (failure->error_file[0])
        error_file_text_add(failure, place->options->redacts);
    if (failure->error_file[0])
        return;
    explain_by_output(worker, last_lines);
    if (place->options->redacts)
        error_file_text_redact(failure);
}

/* A process can need long to end after it has failed, and we can be late to see its end: its
 * error file is from the moment itself, if it has one. */
static void date_failure(struct worker *worker, uint64_t seen_ms, uint64_t written_ns)
{
    struct ct_failure *failure = &worker->failure;
    const uint64_t now_ms = ct_now_ms(), wall_ns = ct_wall_ns();
    /* Rounded up: what happened within one millisecond is not dated behind what followed from it. */
    const uint64_t age_ms = written_ns < wall_ns
                                ? (wall_ns - written_ns + 999999) / 1000000
                                : 0;
    uint64_t at_ms;

    failure->happened_ms = seen_ms;
    if (!failure->error_file[0] || written_ns == 0 || age_ms >= now_ms)
        return;
    at_ms = now_ms - age_ms;
    if (at_ms < seen_ms && at_ms + WORKER_FILE_CLOCK_MS >= worker->started_ms)
        failure->happened_ms = at_ms > worker->started_ms ? at_ms : worker->started_ms;
}

bool worker_has_raised(struct worker *worker, const struct worker_place *place)
{
    struct ct_failure *failure = &worker->failure;
    uint64_t written_ns;

    if (worker->state != WORKER_RUNNING || worker->has_raised || worker->stop_signal ||
        worker->is_freed || worker->plan.may_restart || worker->timer_signal)
        return false;
    begin_failure(worker, place);
    failure->cause = CT_CAUSE_RAISED;
    (void)worker_add_chaos(failure, worker); /* a handler that raises */
    written_ns = find_error_file(worker);
    failure->local_rank += place->options->local_id;
    if (failure->error_file[0])
        error_file_text_add(failure, place->options->redacts);
    if (!failure->error_file[0]) {
        *failure = (struct ct_failure){0};
        return false;
    }
    date_failure(worker, ct_now_ms(), written_ns);
    failure->uptime_ms = failure->happened_ms - worker->started_ms;
    failure_hints_add(failure, false, "");
    worker->has_raised = true;
    return true;
}

/* What was told of it stays; how it ended is new. */
static void end_raised(struct worker *worker, int status)
{
    const struct exit_cause_evidence evidence = {.status = status,
                                                 .stop_signal = SIGTERM};
    struct ct_failure end = {0};

    exit_cause_classify(&evidence, &end);
    worker->failure.end_code = end.end_code;
}

void worker_end(struct worker *worker, const struct worker_place *place,
                struct failure_evidence death)
{
    const struct exit_cause_evidence evidence = {
        .status = death.status,
        .stop_signal = worker->stop_signal || !worker->is_freed ? worker->stop_signal
                                                                : SIGTERM,
        .is_oom_proven = *death.oom_proof != '\0',
    };
    char last_lines[CT_REASON_MAX] = "";
    uint64_t written_ns = 0;
    bool is_chaos = false;

    worker->state = WORKER_ENDED;
    output_drain(worker->out);
    output_drain(worker->err);
    throttle_flush(worker->throttle);
    if (worker->has_raised) {
        end_raised(worker, death.status);
        emit_ended(worker, place);
        return;
    }
    begin_failure(worker, place);
    exit_cause_classify(&evidence, &worker->failure);
    if (worker->failure.cause != CT_CAUSE_NONE)
        is_chaos = worker_add_chaos(&worker->failure, worker);
    if (worker->failure.cause != CT_CAUSE_NONE)
        written_ns = find_error_file(worker);
    if (worker->timer_signal)
        blame_timer(worker);
    if (worker->failure.cause != CT_CAUSE_NONE)
        explain(worker, place, last_lines, sizeof last_lines);
    date_failure(worker, death.seen_ms, written_ns);
    death.program = worker->plan.argv[0];
    death.last_lines = last_lines;
    death.started_ms = worker->started_ms;
    death.memory = &worker->memory;
    death.has_core_raised = worker->plan.bind.raises_core;
    death.passed_signal = worker->passed_signal;
    if (!worker->timer_signal && !is_chaos)
        failure_evidence_add(&worker->failure, &death);
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

bool worker_has_failed(const struct worker *worker)
{
    return worker->state == WORKER_ENDED && worker->failure.cause != CT_CAUSE_NONE &&
           worker->failure.cause != CT_CAUSE_STOPPED;
}

int worker_restart(struct worker *worker, const struct worker_place *place)
{
    struct spawn_batch batch;
    struct worker_place alone = *place;
    const int local_rank = worker->local_rank;
    const int restarts = worker->restarts + 1;
    int rc;

    worker_deinit(worker);
    worker->restarts = restarts;
    worker_open_batch(&batch, place, 1);
    alone.batch = &batch;
    if ((rc = worker_plan(worker, &alone, local_rank)) < 0)
        return rc;
    rc = worker_start(worker, &alone);
    worker_wait_batch(&batch, place);
    if (rc == 0)
        rc = worker_confirm(worker, &alone);
    spawn_end(&batch);
    return rc;
}

void worker_expire(struct worker *worker, const char *scope, int signal)
{
    const char *name = ct_signal_name(signal);
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

int worker_pass_signal(struct worker *worker, int signal)
{
    worker->passed_signal = signal;
    return kill(worker->pid, signal) < 0 ? -errno : 0;
}

int worker_inject(struct worker *worker, const struct ct_fault *fault)
{
    const bool is_stop = fault->kind == CT_FAULT_STOP;
    const int signal = is_stop ? SIGSTOP : fault->signal;

    if (kill(worker->pid, signal) < 0)
        return -errno;
    worker->chaos.signal = signal;
    worker->chaos.line = fault->line;
    worker->chaos.at_ms = ct_now_ms();
    if (is_stop)
        worker->chaos.until_ms = ct_deadline_ms(fault->for_ms);
    return 0;
}

void worker_resume(struct worker *worker)
{
    worker->chaos.until_ms = 0;
    (void)kill(worker->pid, SIGCONT);
}

bool worker_add_chaos(struct ct_failure *failure, const struct worker *worker)
{
    const bool is_it = failure->cause == CT_CAUSE_SIGNAL &&
                       failure->code == worker->chaos.signal;
    const char *name = ct_signal_name(worker->chaos.signal);
    const uint64_t age_ms = ct_now_ms() - worker->chaos.at_ms;

    if (worker->chaos.signal == 0 || failure->cause == CT_CAUSE_STOPPED)
        return false;
    failure->may_loop = 0; /* nor would it fail so again */
    if (is_it)
        facts_add(failure, CT_FACT_CHAOS, "killed by ctrunctl chaos (plan line %u)",
                  worker->chaos.line);
    else
        facts_add(failure, CT_FACT_CHAOS,
                  "ctrunctl chaos sent it %s%s %llu.%llu s before (plan line %u)",
                  name ? "SIG" : "a signal", name ? name : "",
                  (unsigned long long)age_ms / 1000,
                  (unsigned long long)age_ms / 100 % 10, worker->chaos.line);
    return is_it;
}

void worker_resize(struct worker *worker)
{
    output_resize(worker->out);
    output_resize(worker->err);
    if (worker->state == WORKER_RUNNING)
        (void)kill(worker->pid, SIGWINCH);
}

void worker_deinit(struct worker *worker)
{
    if (worker->state == WORKER_NEW && !worker->plan.argv)
        return; /* not planned since it was zeroed: its pages stay untouched */
    output_finish(worker->out);
    output_finish(worker->err);
    throttle_close(worker->throttle);
    free(worker->orphans);
    worker_metrics_destroy(worker->metrics);
    free(worker->samples);
    agent_worker_plan_deinit(&worker->plan);
    memset(worker, 0, sizeof *worker);
}
