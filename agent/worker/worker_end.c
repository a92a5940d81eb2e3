/* SPDX-License-Identifier: Apache-2.0 */
/* The failure report of a worker, put together when the worker ends, or earlier from its error
 * file. */
#include <errno.h>
#include <signal.h>

#include "agent/error_file/error_file_text.h"
#include "agent/loop/limits.h"
#include "agent/postmortem/exit_cause.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/postmortem/interpreter.h"
#include "agent/postmortem/traceback.h"
#include "agent/postmortem/unkillable.h"
#include "agent/worker/worker_metrics.h"
#include "agent/worker/worker_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/str.h"

enum {
    SHARED_AFTER_MAX =
        1024 /* bytes of standard output behind a traceback in the same pipe */
};

/* The facts that every failure of this worker has. */
static void begin_failure(struct worker *worker, const struct worker_place *place)
{
    struct ct_failure *failure = &worker->failure;

    memset(failure, 0, sizeof *failure);
    failure->generation = place->start->generation;
    failure->rank = worker->rank;
    failure->local_rank = worker->local_id;
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
    worker_emit_role(&event, worker, place);
    ct_event_end(&event);
    ct_info("worker ended rank=%d pid=%d cause=%s code=%d generation=%llu",
            failure->rank, failure->pid, ct_cause_name(failure->cause), failure->code,
            (unsigned long long)failure->generation);
    if (place->options->on_worker_ended)
        place->options->on_worker_ended(place->options->context, failure);
}

/* The worker never ran. */
int worker_fail_start(struct worker *worker, const struct worker_place *place,
                      int cause, const struct ctrun_error *err)
{
    worker->state = WORKER_ENDED;
    worker->pid = 0;
    begin_failure(worker, place);
    worker->failure.cause = (uint8_t)cause;
    worker->failure.code = -err->code;
    (void)ct_copy(worker->failure.text, sizeof worker->failure.text, err->text);
    /* Without argv the text is that of the launcher, which has looked. */
    if (cause != CT_CAUSE_EXEC ||
        (worker->plan.argv &&
         !interpreter_explain(&worker->failure, worker->plan.argv[0])))
        failure_hints_add(&worker->failure, false, "");
    emit_ended(worker, place);
    return err->code;
}

/* A traceback explains an uncaught exception, however much other threads or processes wrote after
 * it. A worker that ended in another way may have handled the exception, unless the traceback was
 * its last output to stderr: where stdout has the same pipe, a few lines may be stdout's. */
static bool find_traceback(const struct worker *worker, char *dst)
{
    const struct ct_failure *failure = &worker->failure;
    const bool is_uncaught = (failure->cause == CT_CAUSE_EXIT && failure->code == 1) ||
                             (failure->cause == CT_CAUSE_SIGNAL &&
                              failure->code == SIGABRT);
    const size_t after_max = is_uncaught   ? SIZE_MAX
                             : worker->err ? 0
                                           : SHARED_AFTER_MAX;

    return failure->cause != CT_CAUSE_STOPPED &&
           (output_traceback(worker->err, after_max, dst) ||
            output_traceback(worker->out, after_max, dst));
}

/* Keeps the end of a longer text. */
static void set_text(struct ct_failure *failure, const char *text)
{
    const size_t length = strlen(text);

    if (length >= sizeof failure->text)
        text += length - sizeof failure->text + 1;
    (void)ct_copy(failure->text, sizeof failure->text, text);
}

/* From the worker's output: its last traceback, else its last lines. */
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

/* A worker that ends well on the signal has run out of time, too. */
static void blame_timer(struct worker *worker)
{
    struct ct_failure *failure = &worker->failure;

    if (failure->cause == CT_CAUSE_NONE || failure->cause == CT_CAUSE_STOPPED) {
        failure->cause = CT_CAUSE_SIGNAL;
        failure->code = worker->timer_signal;
    }
    failure->error_file[0] = '\0'; /* the timer is the cause, not its last lines */
}

/* The worker's own error file, if it has one. Returns when it was written, or 0. */
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

/* The error file comes first; without one, the worker's output. */
static void explain(struct worker *worker, const struct worker_place *place,
                    char *last_lines, size_t size)
{
    struct ct_failure *failure = &worker->failure;

    /* Of stderr, or of stdout when stderr was silent, or of both where they have one pipe. */
    if (output_last_lines(worker->err, last_lines, size) == 0)
        (void)output_last_lines(worker->out, last_lines, size);
    if (failure->error_file[0])
        error_file_text_add(failure, place->options->redacts);
    if (failure->error_file[0])
        return;
    explain_by_output(worker, last_lines);
    if (place->options->redacts)
        error_file_text_redact(failure);
}

/* A process may end long after it has failed, and we may see its end late: an error file has the
 * time of the failure itself. */
static void date_failure(struct worker *worker, uint64_t seen_ms, uint64_t written_ns)
{
    struct ct_failure *failure = &worker->failure;
    const uint64_t now_ms = ct_now_ms(), wall_ns = ct_wall_ns();
    /* Rounded up: a cause and its effect within one millisecond must not be dated in the wrong
     * order. */
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

bool worker_add_chaos(struct ct_failure *failure, const struct worker *worker)
{
    const bool is_it = failure->cause == CT_CAUSE_SIGNAL &&
                       failure->code == worker->chaos.signal;
    char name[CT_SIGNAL_NAME_MAX];
    const uint64_t age_ms = ct_now_ms() - worker->chaos.at_ms;

    if (worker->chaos.signal == 0 || failure->cause == CT_CAUSE_STOPPED)
        return false;
    failure->may_loop = 0; /* it would not fail so again */
    if (is_it)
        facts_add(failure, CT_FACT_CHAOS, "killed by ctrunctl chaos (plan line %u)",
                  worker->chaos.line);
    else
        facts_add(failure, CT_FACT_CHAOS,
                  "ctrunctl chaos sent it %s %llu.%llu s before (plan line %u)",
                  ct_signal_format(name, worker->chaos.signal),
                  (unsigned long long)age_ms / 1000,
                  (unsigned long long)age_ms / 100 % 10, worker->chaos.line);
    return is_it;
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

/* The failure was reported before and stays; only how the worker ended is added. */
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
        .stop_signal = worker->stop_signal                     ? worker->stop_signal
                       : worker->is_freed || worker->is_spared ? SIGTERM
                                                               : 0,
        .has_no_handler = worker->has_no_handler && !worker->is_freed,
        .is_oom_proven = WIFSIGNALED(death.status) &&
                         WTERMSIG(death.status) == SIGKILL &&
                         failure_evidence_is_oom(&death, worker->pid),
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
    death.env = worker->plan.env.list;
    death.may_use_gpu = place->options->may_use_gpu;
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
