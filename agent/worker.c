/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/aside.h"
#include "agent/cause.h"
#include "agent/diagnosis.h"
#include "agent/facts.h"
#include "agent/limits.h"
#include "agent/pmi.h"
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

void worker_find_role(struct ct_role_at *out, const struct worker *worker,
                      const struct agent_options *options, const struct ct_start *start)
{
    ct_role_find(out, &options->join.roles, options->join.role, start,
                 (uint32_t)worker->local_rank);
}

void worker_add_role(struct ct_failure *failure, const struct worker *worker,
                     const struct agent_options *options, const struct ct_start *start)
{
    struct ct_role_at role;

    if (options->join.roles.count == 0)
        return;
    worker_find_role(&role, worker, options, start);
    facts_add(failure, "role", "%s, rank %u of %u", role.name, role.rank,
              role.world_size);
}

/* Where a node has several. */
static void emit_role(struct ct_event *event, const struct worker *worker,
                      const struct worker_place *place)
{
    struct ct_role_at role;

    if (place->options->join.roles.count == 0)
        return;
    worker_find_role(&role, worker, place->options, place->start);
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
    failure->is_early = failure->uptime_ms < place->options->min_uptime_ms;
    (void)ct_copy(failure->host, sizeof failure->host, place->options->hello.host);
    worker_add_role(failure, worker, place->options, place->start);
}

static void emit_started(const struct worker *worker, const struct worker_place *place)
{
    struct ct_event event;

    ct_event_begin(&event, "worker_started");
    ct_event_int(&event, "generation", (int64_t)place->start->generation);
    ct_event_int(&event, "rank", worker->rank);
    ct_event_int(&event, "local_rank", worker->local_rank);
    ct_event_int(&event, "worker_pid", worker->pid);
    emit_role(&event, worker, place);
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
    const struct agent_options *options = place->options;
    const int fd = is_err ? STDERR_FILENO : STDOUT_FILENO;

    if (worker->plan.in == AGENT_INPUT_SOLE && isatty(STDIN_FILENO) && isatty(fd))
        return true;
    return options->join.slots == 1 && options->rate_limit == 0 &&
           (options->hello.max_nodes == 1 || isatty(fd));
}

static int open_throttle(struct worker *worker, const struct worker_place *place,
                         struct ctrun_error *err)
{
    const struct agent_options *options = place->options;

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
    const struct output_options options = {
        .loop = place->loop,
        .files = place->files,
        .console = is_err ? place->console_err : place->console_out,
        .chorus = is_err ? place->chorus_err : place->chorus_out,
        .throttle = worker->throttle,
        .local_rank = worker->local_rank,
        .kind = is_err ? plan->err : plan->out,
        .is_inherited = may_inherit(worker, place, is_err),
        .file = is_err ? plan->err_file : plan->out_file,
        .filtered_file = is_err ? plan->filtered_err_file : plan->filtered_out_file,
        .filters = is_err ? place->options->err_filters : place->options->out_filters,
        .prefix = plan->prefix,
        .paint = is_err ? plan->err_paint : plan->out_paint,
        .file_max_bytes = place->options->log_max_bytes,
        .file_keep = place->options->log_keep,
        .appends = worker->restarts > 0,
        .pipe_bytes = place->options->join.slots <= OUTPUT_PIPE_WORKERS_MAX
                          ? OUTPUT_PIPE_BYTES
                          : 0,
    };

    return output_open(is_err ? &worker->err : &worker->out, &options, child_fd, err);
}

/* Without it each worker would take itself for a world of one, and compute something else. */
static int take_pmi(struct worker *worker, const struct worker_place *place, int *fd,
                    struct ctrun_error *err)
{
    int rc;

    if (!place->pmi)
        return ct_fail(err, -ENOMEM, "--pmi: it could not be set up");
    if (place->start->world_size != place->options->join.slots)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--pmi: serves one node, and this round has %u",
                       place->start->group_world_size);
    rc = pmi_hand_out(place->pmi, worker->local_rank, &worker->plan.env, fd);
    return rc < 0 ? ct_fail(err, rc, "--pmi: environment: %s", strerror(-rc)) : 0;
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
                                    .bind = &worker->plan.bind};
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
    if (rc == 0 && place->options->serves_pmi)
        rc = take_pmi(worker, place, &request.extra, err);
    else if (rc == 0 && place->options->pmi_fd > 0)
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
    diagnosis_add(&worker->failure, false);
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
    worker->plan.restarts = worker->restarts;
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

/* It may have left its own words; launcher/ reads them. Returns when, or 0. */
static uint64_t find_error_file(struct worker *worker)
{
    struct ct_failure *failure = &worker->failure;
    uint64_t written_ns;

    if (!worker->plan.error_file ||
        !aside_find_file(worker->plan.error_file, WORKER_LOOK_MS, &written_ns))
        return 0;
    (void)ct_copy(failure->error_file, sizeof failure->error_file,
                  worker->plan.error_file);
    return written_ns;
}

/* A process can need long to end after it has failed, and we can be late to see its end: its
 * error file is from the moment itself, if it has one. */
static void date_failure(struct worker *worker, uint64_t seen_ms, uint64_t written_ns)
{
    struct ct_failure *failure = &worker->failure;
    const uint64_t now_ms = ct_now_ms(), wall_ns = ct_wall_ns();
    const uint64_t age_ms = written_ns < wall_ns ? (wall_ns - written_ns) / 1000000 : 0;

    failure->happened_ms = seen_ms;
    if (failure->error_file[0] && written_ns > 0 && age_ms < now_ms &&
        now_ms - age_ms < seen_ms && now_ms - age_ms >= worker->started_ms)
        failure->happened_ms = now_ms - age_ms;
}

/* Who has aborted was killed at its own request. */
static int end_of(const struct worker *worker, int status)
{
    return worker->abort_code && WIFSIGNALED(status) ? W_EXITCODE(worker->abort_code, 0)
                                                     : status;
}

void worker_end(struct worker *worker, const struct worker_place *place,
                struct evidence death)
{
    const struct cause_evidence evidence = {
        .status = death.status = end_of(worker, death.status),
        .stop_signal = worker->stop_signal,
        .is_oom_proven = *death.oom_proof != '\0',
    };
    uint64_t written_ns = 0;

    worker->state = WORKER_ENDED;
    output_drain(worker->out);
    output_drain(worker->err);
    throttle_flush(worker->throttle);
    begin_failure(worker, place);
    cause_classify(&evidence, &worker->failure);
    if (worker->failure.cause != CT_CAUSE_NONE)
        written_ns = find_error_file(worker);
    if (worker->timer_signal)
        blame_timer(worker);
    if (worker->failure.cause != CT_CAUSE_NONE)
        write_text(worker);
    if (worker->failure.cause != CT_CAUSE_NONE && place->options->describe)
        place->options->describe(place->options->context, &worker->failure);
    date_failure(worker, death.seen_ms, written_ns);
    death.program = worker->plan.argv[0];
    death.started_ms = worker->started_ms;
    death.memory = &worker->memory;
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

bool worker_has_failed(const struct worker *worker)
{
    return worker->state == WORKER_ENDED && worker->failure.cause != CT_CAUSE_NONE &&
           worker->failure.cause != CT_CAUSE_STOPPED;
}

int worker_restart(struct worker *worker, const struct worker_place *place)
{
    struct spawn_batch batch = {.max = 1};
    struct worker_place alone = *place;
    const int local_rank = worker->local_rank;
    const int restarts = worker->restarts + 1;
    int rc;

    worker_deinit(worker);
    worker->restarts = restarts;
    alone.batch = &batch;
    if ((rc = worker_plan(worker, &alone, local_rank)) < 0)
        return rc;
    rc = worker_start(worker, &alone);
    spawn_wait(&batch);
    if (rc == 0)
        rc = worker_confirm(worker, &alone);
    spawn_end(&batch);
    return rc;
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

void worker_abort(struct worker *worker, int code)
{
    worker->abort_code = code;
    (void)kill(-worker->pid, SIGKILL);
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
    throttle_close(worker->throttle);
    free(worker->remains);
    agent_worker_plan_deinit(&worker->plan);
    memset(worker, 0, sizeof *worker);
}
