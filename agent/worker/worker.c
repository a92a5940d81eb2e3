/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/fence.h"
#include "agent/loop/limits.h"
#include "agent/process/signal_effect.h"
#include "agent/worker/worker_metrics.h"
#include "agent/worker/worker_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static void emit_started(const struct worker *worker, const struct worker_place *place)
{
    struct ct_event event;

    ct_event_begin(&event, "worker_started");
    ct_event_int(&event, "generation", (int64_t)place->start->generation);
    ct_event_int(&event, "rank", worker->rank);
    ct_event_int(&event, "local_rank", worker->local_id);
    ct_event_int(&event, "worker_pid", worker->pid);
    ct_event_str(&event, "start", worker->is_forked ? "fork" : "exec");
    worker_emit_role(&event, worker, place);
    ct_event_end(&event);
    if (place->options->on_worker_started)
        place->options->on_worker_started(place->options->context, worker->local_rank,
                                          worker->pid);
}

/* 2>&1 */
static bool are_one_file(const struct stat *out, const struct stat *err)
{
    return out->st_dev == err->st_dev && out->st_ino == err->st_ino;
}

static bool stat_both(struct stat *out, struct stat *err)
{
    return fstat(STDOUT_FILENO, out) == 0 && fstat(STDERR_FILENO, err) == 0;
}

static bool has_err_a_file_of_its_own(void)
{
    struct stat out, err;

    return stat_both(&out, &err) && S_ISREG(err.st_mode) && !are_one_file(&out, &err);
}

/* The only worker of a node writes directly to our streams and keeps its terminal; so does the
 * worker that reads from the terminal, because a prompt is no whole line. If other nodes may join,
 * output that is not to a terminal passes through us: failure reports on other nodes show its last
 * lines. On one node stderr alone does, for the exception; but only where it is a regular
 * file that is not stdout's: two pipes may have one reader, and the order of the two would change. */
static bool may_inherit(const struct worker *worker, const struct worker_place *place,
                        bool is_err)
{
    const struct worker_options *options = place->options;
    const int fd = is_err ? STDERR_FILENO : STDOUT_FILENO;

    if (worker->plan.in == AGENT_INPUT_SOLE && isatty(STDIN_FILENO) && isatty(fd))
        return true;
    return place->join->slots == 1 && options->rate_limit == 0 &&
           (isatty(fd) ||
            (place->is_one_node && (!is_err || !has_err_a_file_of_its_own())));
}

/* Lines that line_dedup compares need plain output: progress bars and colours would make all of
 * them differ. */
static bool has_terminal(const struct worker_place *place, bool is_err)
{
    return place->options->uses_pty && !place->dedup_out &&
           isatty(is_err ? STDERR_FILENO : STDOUT_FILENO);
}

/* Where our two streams are one file, a Python worker gets one pipe for both, so that its own lines keep their order.
 * Another program may write its buffered standard output when it ends: in one pipe that would come after its error, and
 * the failure report would show it in place of the error. */
static bool has_one_pipe(const struct worker *worker, const struct worker_place *place)
{
    struct stat out, err;

    return worker->plan.is_python && worker->plan.out == AGENT_STREAM_CONSOLE &&
           worker->plan.err == AGENT_STREAM_CONSOLE &&
           !may_inherit(worker, place, false) && !may_inherit(worker, place, true) &&
           stat_both(&out, &err) && are_one_file(&out, &err);
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

/* The descriptor that becomes descriptor 0; -1: the agent's own. */
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

/* worker->err stays NULL where stdout's pipe is that of both. */
static int open_streams(struct worker *worker, const struct worker_place *place,
                        struct spawn_request *request, struct ctrun_error *err)
{
    int rc = open_stream(worker, place, false, &request->out, err);

    if (rc < 0)
        return rc;
    if (!has_one_pipe(worker, place))
        return open_stream(worker, place, true, &request->err, err);
    request->err = fcntl(request->out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return request->err >= 0
               ? 0
               : ct_fail(err, -errno, "stderr of a worker: %s", strerror(errno));
}

/* The PMI descriptor that the worker would have without ctrun. Gets another number, because the old
 * one may be in use here. */
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
                                    .may_fork = worker->plan.is_python};
    int rc;

    if ((rc = open_throttle(worker, place, err)) == 0 &&
        (rc = open_input(worker, &request.in, err)) == 0)
        rc = open_streams(worker, place, &request, err);
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
    ct_close(&request.in);
    ct_close(&request.out);
    ct_close(&request.err);
    if (request.extra > 0)
        close(request.extra);
    return rc;
}

int worker_plan(struct worker *worker, const struct worker_place *place, int local_rank)
{
    const struct worker_options *options = place->options;
    struct ctrun_error err = {0};
    int rc;

    worker->local_rank = local_rank;
    worker->local_id = options->local_id + local_rank;
    worker->rank = (int)place->start->rank_base + local_rank;
    worker->step = -1;
    worker->plan.restarts = worker->restarts;
    rc = options->plan(options->context, place->start, local_rank, &worker->plan, &err);
    if (rc == 0)
        return 0;
    if (rc == CTRUN_E_EXEC || rc == -ENOEXEC) {
        err.code = rc == -ENOEXEC ? rc : -ENOENT;
        return worker_fail_start(worker, place, CT_CAUSE_EXEC, &err);
    }
    err.code = rc;
    return worker_fail_start(worker, place, CT_CAUSE_AGENT, &err);
}

void worker_open_batch(struct spawn_batch *batch, const struct worker_place *place,
                       int max)
{
    *batch = (struct spawn_batch){.max = max,
                                  .template = template_socket(place->template),
                                  .silent_until_ms = fence_next_ms()};
}

void worker_wait_batch(struct spawn_batch *batch, const struct worker_place *place)
{
    spawn_wait(batch);
    if (*batch->why)
        template_fail_batch(place->template, batch->rc, batch->why);
}

int worker_start(struct worker *worker, const struct worker_place *place)
{
    struct ctrun_error err = {0};
    /* before the fork: what the worker does comes later, however late this process runs again */
    const uint64_t now_ms = ct_now_ms();
    const int rc = start_planned(worker, place, &err);

    if (rc < 0) {
        err.code = rc;
        return worker_fail_start(worker, place, CT_CAUSE_AGENT, &err);
    }
    worker->state = WORKER_RUNNING;
    worker->started_ms = now_ms;
    return 0;
}

int worker_confirm(struct worker *worker, const struct worker_place *place)
{
    struct ctrun_error err = {0};

    if (spawn_check(&worker->spawn, place->batch, &err) < 0)
        return worker_fail_start(worker, place, CT_CAUSE_EXEC, &err);
    worker->pid = spawn_pid(&worker->spawn, place->batch);
    worker->runs_ms = ct_now_ms();
    worker->is_forked = spawn_is_forked(&worker->spawn, place->batch);
    emit_started(worker, place);
    return 0;
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
    char name[CT_SIGNAL_NAME_MAX];

    if (worker->timer_signal == 0) { /* an earlier warning has said it */
        worker->timer_signal = signal;
        (void)ct_format(worker->timer_text, sizeof worker->timer_text,
                        "timer expired: scope %.180s; sent %s", scope,
                        ct_signal_format(name, signal)); /* cut is fine */
    }
    ct_event_emit("timer_expired", CT_INT("rank", worker->rank),
                  CT_INT("local_rank", worker->local_id),
                  CT_INT("worker_pid", worker->pid), CT_INT("signal", signal),
                  CT_STR("scope", scope));
    (void)kill(worker->pid, signal);
}

/* Dead, but not reaped: its end is no consequence of a signal that comes now. One that died of the
 * same signal, or may have been ended by a handler, had it from whoever sent it to us: a batch system
 * signals all processes of a job. */
static bool has_ended_by_itself(const struct worker *worker, int signal)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == worker->pid &&
           (info.si_code == CLD_EXITED ? worker->has_no_handler
                                       : info.si_status != signal);
}

void worker_signal(struct worker *worker, int signal)
{
    if (!worker->stop_signal)
        worker->has_no_handler = signal_effect_ends(worker->pid, signal);
    if (worker->stop_signal || !has_ended_by_itself(worker, signal))
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
        return; /* not planned since the worker was zeroed: the plan's pages stay untouched */
    output_finish(worker->out);
    output_finish(worker->err);
    throttle_close(worker->throttle);
    free(worker->orphans);
    worker_metrics_destroy(worker->metrics);
    free(worker->samples);
    agent_worker_plan_deinit(&worker->plan);
    memset(worker, 0, sizeof *worker);
}
