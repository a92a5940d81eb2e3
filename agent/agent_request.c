/* SPDX-License-Identifier: Apache-2.0 */
/* What people ask of a run: signals, and ctrunctl. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/agent_private.h"
#include "agent/process_name.h"
#include "agent/report.h"

enum {
    WHY_MAX_BYTES = 8192
};

/* ---- Signals ---------------------------------------------------------------------------- */

bool agent_is_ending_signal(const struct agent *agent, int signal)
{
    for (size_t i = 0; i < agent->options->signal_count; i++)
        if (agent->options->signals[i] == signal)
            return true;
    return false;
}

/* The guard and a scheduler that signals every process of a step both deliver: one counts. */
static bool is_copy(struct agent *agent, int signal)
{
    const uint64_t now_ms = ct_now_ms();
    const bool is_same = !agent->options->signals_are_exact &&
                         signal == agent->last_signal &&
                         now_ms - agent->last_signal_ms < AGENT_SIGNAL_DEDUP_MS;

    if (!is_same) {
        agent->last_signal = signal;
        agent->last_signal_ms = now_ms;
    }
    return is_same;
}

static void emit_signal(int signal, pid_t sender)
{
    struct ct_event event;

    ct_event_begin(&event, "signal");
    ct_event_int(&event, "signal", signal);
    ct_event_int(&event, "sender_pid", sender);
    ct_event_end(&event);
    ct_info("signal received signal=SIG%s sender=%d", sigabbrev_np(signal), sender);
}

static void begin_end(struct agent *agent, int signal, uint64_t grace_ms,
                      const char *why)
{
    agent->result->signal = signal;
    agent_begin_countdown(agent, grace_ms);
    agent_send_leave(agent, why);
}

/* False: no workers are left that could be stopped, and the run is over for this node. */
static bool has_workers(struct agent *agent, const char *why)
{
    if (agent->state == AGENT_RUNNING ||
        (agent->state == AGENT_STOPPING && !agent->is_gone))
        return true;
    if (agent->state != AGENT_ENDED)
        agent_end(agent, why);
    return false;
}

/* Who stops the whole job leaves more time than a new round does. */
static void stop_for_good(struct agent *agent, int signal, uint64_t grace_ms,
                          const char *why)
{
    agent_stop(agent, AFTER_END, signal, grace_ms, why);
    if (agent->result->error.code == 0) /* else we are fenced, and must be quick */
        crew_extend(agent->crew, grace_ms);
}

/* The first ending signal goes to the workers as it is. Further Ctrl-Cs are a person who cannot
 * wait: then SIGTERM with a short grace, then SIGKILL. */
static void end_by_signal(struct agent *agent, int signal, pid_t sender)
{
    const uint64_t grace_ms = agent_signal_grace_ms(agent);
    char by[PROCESS_NAME_MAX];
    char why[96];

    agent->interrupts += signal == SIGINT;
    if (agent->result->signal == 0) {
        (void)ct_format(why, sizeof why, "SIG%s from pid %d%s%s", sigabbrev_np(signal),
                        sender, sender ? " " : "", process_name(by, sender));
        begin_end(agent, signal, grace_ms, why);
    } else if (signal != SIGINT || agent->interrupts < 2) {
        return;
    }
    if (!has_workers(agent, "signal"))
        return;
    if (agent->interrupts <= 1) {
        stop_for_good(agent, signal, grace_ms, "signal");
    } else if (agent->interrupts == 2) {
        agent_stop(agent, AFTER_END, SIGTERM, AGENT_HURRY_MS, "second interrupt");
    } else {
        agent_stop(agent, AFTER_END, SIGKILL, 0, "third interrupt");
    }
}

void agent_end_in_time(struct agent *agent, int signal, uint64_t grace_ms,
                       const char *why)
{
    const bool is_ending = agent->result->signal != 0;

    if (!is_ending)
        begin_end(agent, signal, grace_ms, why);
    if (!has_workers(agent, why))
        return;
    if (is_ending) { /* it may end earlier, not later */
        if (ct_deadline_ms(grace_ms) < agent->grace_deadline_ms)
            agent->grace_deadline_ms = ct_deadline_ms(grace_ms);
        agent_stop(agent, AFTER_END, signal, grace_ms, why);
    } else {
        stop_for_good(agent, signal, grace_ms, why);
    }
}

static void on_signal(void *context, int signal, pid_t sender)
{
    struct agent *agent = context;

    if (signal == SIGCHLD) {
        crew_reap(agent->crew);
        return;
    }
    if (is_copy(agent, signal))
        return;
    emit_signal(signal, sender);
    if (agent->options->on_signal)
        agent->options->on_signal(agent->options->context, signal, sender,
                                  agent_is_ending_signal(agent, signal),
                                  agent->interrupts + (signal == SIGINT));
    if (agent_is_ending_signal(agent, signal))
        end_by_signal(agent, signal, sender);
    else
        agent_pass_on(agent, signal);
}

int agent_open_signals(struct agent *agent, struct ctrun_error *err)
{
    int list[NSIG];
    size_t count = 0;
    int rc;

    for (size_t i = 0; i < agent->options->signal_count && count < NSIG - 2; i++)
        list[count++] = agent->options->signals[i];
    list[count++] = SIGUSR1; /* unless listed: only passed on */
    list[count++] = SIGUSR2;
    rc = signals_open(&agent->signals, agent->loop, list, count, on_signal, agent);
    return rc < 0 ? ct_fail(err, rc, "signals: %s", strerror(-rc)) : 0;
}

/* ---- ctrunctl --------------------------------------------------------------------------- */

static void emit_request(const char *verb, int signal, int rank, pid_t sender)
{
    struct ct_event event;

    ct_event_begin(&event, "control_request");
    ct_event_str(&event, "verb", verb);
    ct_event_int(&event, "signal", signal);
    ct_event_int(&event, "rank", rank);
    ct_event_int(&event, "sender_pid", sender);
    ct_event_end(&event);
}

static int on_remote_status(void *context, struct ct_buf *out, struct ctrun_error *err)
{
    const struct agent *agent = context;
    const struct report report = {
        .options = agent->options,
        .state = agent->drained_by != 0 && agent->state == AGENT_RUNNING
                     ? "draining"
                     : agent_state_name(agent->state),
        .start = &agent->start,
        .waiting = &agent->waiting,
        .crew = agent->crew,
        .born_ms = agent->born_ms,
        .min_nodes = agent->min_nodes,
        .max_nodes = agent->max_nodes,
    };
    const int rc = report_format(out, &report);

    return rc < 0 ? ct_fail(err, rc, "status: %s", strerror(-rc)) : 0;
}

static int on_remote_why(void *context, struct ct_buf *out, struct ctrun_error *err)
{
    const struct agent *agent = context;
    char text[WHY_MAX_BYTES] = "";
    uint8_t quoted[2 * WHY_MAX_BYTES];
    struct ct_writer writer;

    if (agent->options->why)
        agent->options->why(agent->options->context, text, sizeof text);
    ct_writer_init(&writer, quoted, sizeof quoted);
    ct_json_write_str(&writer, text);
    if (ct_write_end(&writer) < 0)
        return ct_fail(err, -EMSGSIZE, "why: too many odd characters");
    return ct_buf_printf(out, "{\"generation\":%llu,\"why\":%.*s}",
                         (unsigned long long)agent->start.generation,
                         (int)writer.length, (const char *)quoted);
}

static int on_remote_signal(void *context, int signal, int rank, pid_t sender,
                            struct ct_buf *out, struct ctrun_error *err)
{
    struct agent *agent = context;
    int rc = 0;

    if (signal < 1 || signal >= NSIG)
        return ct_fail(err, -EINVAL, "signal %d: there is no such signal", signal);
    if (agent->state != AGENT_RUNNING)
        return ct_fail(err, -ESRCH, "no worker is running: the run is %s",
                       agent_state_name(agent->state));
    emit_request("signal", signal, rank, sender);
    if (rank < 0)
        agent_pass_on(agent, signal); /* as if the signal had been sent to us */
    else if ((rc = crew_signal_rank(agent->crew, rank, signal)) < 0)
        return ct_fail(err, rc, "rank %d does not run on this node: it has %u to %u",
                       rank, agent->start.rank_base,
                       agent->start.rank_base + agent->options->join.slots - 1);
    return ct_buf_printf(out, "{\"signalled\":true}");
}

void agent_drained(void *context)
{
    struct agent *agent = context;

    loop_timer_stop(agent->drain_timer);
    if (agent->result->signal == 0)
        end_by_signal(agent, SIGTERM, agent->drained_by);
}

void agent_drain(struct agent *agent, const char *reason, pid_t sender)
{
    if (agent->drained_by != 0 || agent->state == AGENT_ENDED)
        return;
    emit_request("stop", SIGTERM, -1, sender);
    ct_info("asked to stop reason=%s sender=%d", reason, sender);
    agent->drained_by = sender;
    if (agent->state == AGENT_RUNNING &&
        control_ask_to_stop(agent->control, reason) > 0)
        loop_timer_set(agent->drain_timer, agent->options->grace_ms);
    else
        agent_drained(agent);
}

static void on_remote_stop(void *context, const char *reason, pid_t sender)
{
    agent_drain(context, reason, sender);
}

static int on_remote_restart(void *context, const char *reason, uint32_t ticket,
                             pid_t sender, struct ctrun_error *err)
{
    emit_request("restart", 0, -1, sender);
    return agent_ask_restart(context, reason, ticket, err);
}

void agent_open_remote(struct agent *agent)
{
    const struct remote_options options = {
        .loop = agent->loop,
        .run_id = agent->options->hello.run_id,
        .context = agent,
        .on_status = on_remote_status,
        .on_why = on_remote_why,
        .on_signal = on_remote_signal,
        .on_resize = agent_ask_resize,
        .on_drain = agent_ask_drain,
        .on_restart = on_remote_restart,
        .on_stop = on_remote_stop,
    };
    struct ctrun_error err;

    if (remote_open(&agent->remote, &options, &err) < 0)
        ct_warn("ctrunctl cannot reach this run: %s", err.text);
}
