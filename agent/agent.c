/* SPDX-License-Identifier: Apache-2.0 */
/* Wires link, crew, signals and worker socket, and holds the state that the header draws. What
 * happens when the last worker of a round is gone is decided when its stop begins or is
 * overruled: enum agent_after. */
#include "agent/agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/console.h"
#include "agent/control.h"
#include "agent/crew.h"
#include "agent/limits.h"
#include "agent/link.h"
#include "agent/remote.h"
#include "agent/report.h"
#include "agent/signals.h"
#include "agent/stuck.h"
#include "agent/watchdog.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum agent_state {
    AGENT_CONNECTING,
    AGENT_JOINING,
    AGENT_RUNNING,
    AGENT_STOPPING,
    AGENT_SUCCEEDED, /* all workers ended with 0; the others' may still run */
    AGENT_ENDED,
};

static const char *const state_names[] = {"connecting", "joining",   "running",
                                          "stopping",   "succeeded", "ended"};

static const unsigned edges[] = {
    [AGENT_CONNECTING] = 1u << AGENT_JOINING | 1u << AGENT_ENDED,
    [AGENT_JOINING] = 1u << AGENT_CONNECTING | 1u << AGENT_RUNNING | 1u << AGENT_ENDED,
    [AGENT_RUNNING] = 1u << AGENT_STOPPING,
    [AGENT_STOPPING] = 1u << AGENT_SUCCEEDED | 1u << AGENT_JOINING | 1u << AGENT_ENDED,
    [AGENT_SUCCEEDED] = 1u << AGENT_STOPPING | 1u << AGENT_ENDED,
    [AGENT_ENDED] = 0,
};

/* What follows a stop. A later one in this list overrules an earlier one. */
enum agent_after {
    AFTER_SUCCEED, /* only leftovers had to go */
    AFTER_REJOIN,  /* report, then do what the server's STOP says */
    AFTER_END,
};

struct agent {
    const struct agent_options *options;
    struct agent_result *result;
    enum agent_state state;
    enum agent_after after;
    bool is_gone; /* STOPPING: no worker is left, the server's word is missing */

    struct loop *loop;
    struct console *console_out;
    struct console *console_err; /* may be the same */
    struct control *control;
    struct remote *remote; /* NULL: ctrunctl cannot reach this run */
    struct loop_timer *drain_timer;
    pid_t drained_by; /* != 0: its ctrunctl has asked us to save and end */
    struct signals *signals;
    struct link *link;
    struct crew *crew;
    struct watchdog *watchdog; /* NULL: no file timer */
    struct stuck *stuck;       /* NULL: not wanted */

    struct ct_start start; /* of the current or last round; generation 0: none yet */
    struct ct_stop stop;   /* for start.generation; reason 0: none came */
    bool has_store;
    uint64_t store;
    uint64_t lost_after_ms;
    uint64_t join_ms;
    uint64_t born_ms;
    struct ct_waiting waiting; /* the last one; max_nodes 0: not waiting */
    int interrupts;            /* Ctrl-Cs that counted */
    int last_signal;
    uint64_t last_signal_ms;
};

/* ---- State ------------------------------------------------------------------------------ */

static void set_state(struct agent *agent, enum agent_state state, const char *why)
{
    struct ct_event event;

    if (agent->state == state)
        return;
    if (!(edges[agent->state] & 1u << state))
        ct_err("agent: no way from=%s to=%s", state_names[agent->state],
               state_names[state]);
    ct_debug("agent: %s -> %s (%s)", state_names[agent->state], state_names[state],
             why);
    ct_event_begin(&event, "agent_state");
    ct_event_str(&event, "from", state_names[agent->state]);
    ct_event_str(&event, "to", state_names[state]);
    ct_event_str(&event, "why", why);
    ct_event_end(&event);
    agent->state = state;
}

static void end(struct agent *agent, const char *why)
{
    set_state(agent, AGENT_ENDED, why);
    loop_stop(agent->loop);
}

/* Ends because the agent cannot go on. The first reason is kept. */
static void fail(struct agent *agent, const struct ctrun_error *why)
{
    if (agent->result->error.code == 0)
        agent->result->error = *why;
    end(agent, why->text);
}

static void close_store(struct agent *agent)
{
    if (agent->has_store)
        agent->options->close_store(agent->options->context, agent->store);
    agent->has_store = false;
}

static void on_drained(void *context);

/* ---- Joining ---------------------------------------------------------------------------- */

/* A new store for every round: nothing of an old one can be read by mistake. */
static void join(struct agent *agent)
{
    const struct agent_options *options = agent->options;
    struct ct_message message = {.kind = CT_MESSAGE_JOIN};
    struct ctrun_error err;

    message.join = options->join;
    close_store(agent);
    if (options->open_store &&
        options->open_store(options->context, &message.join.store_port, &agent->store,
                            &err) < 0) {
        fail(agent, &err);
        return;
    }
    agent->has_store = options->open_store != NULL;
    agent->join_ms = ct_now_ms();
    set_state(agent, AGENT_JOINING, "ready for a round");
    link_send(agent->link, &message);
}

static void on_up(void *context, const struct ct_welcome *welcome)
{
    struct agent *agent = context;

    agent->lost_after_ms = welcome->lost_after_ms;
    join(agent);
}

static void on_connecting(void *context, const char *why, uint64_t waited_ms)
{
    const struct agent *agent = context;

    if (agent->options->on_connecting)
        agent->options->on_connecting(agent->options->context, why, waited_ms);
}

static void take_waiting(struct agent *agent, const struct ct_waiting *waiting)
{
    agent->waiting = *waiting;
    if (agent->state == AGENT_JOINING && agent->options->on_waiting)
        agent->options->on_waiting(agent->options->context, waiting,
                                   ct_now_ms() - agent->join_ms);
}

/* ---- A round ---------------------------------------------------------------------------- */

static void emit_round(const char *name, const struct ct_start *start)
{
    struct ct_event event;

    ct_event_begin(&event, name);
    ct_event_int(&event, "generation", (int64_t)start->generation);
    ct_event_int(&event, "restart_count", start->restart_count);
    ct_event_int(&event, "group_rank", start->group_rank);
    ct_event_int(&event, "group_world_size", start->group_world_size);
    ct_event_int(&event, "rank_base", start->rank_base);
    ct_event_int(&event, "world_size", start->world_size);
    ct_event_str(&event, "master_addr", start->master_addr);
    ct_event_int(&event, "master_port", start->master_port);
    ct_event_end(&event);
}

static void take_start(struct agent *agent, const struct ct_start *start)
{
    if (agent->state != AGENT_JOINING || start->generation <= agent->start.generation) {
        ct_warn("start ignored generation=%llu state=%s",
                (unsigned long long)start->generation, state_names[agent->state]);
        return;
    }
    agent->start = *start;
    memset(&agent->stop, 0, sizeof agent->stop);
    agent->is_gone = false;
    agent->waiting.max_nodes = 0;
    set_state(agent, AGENT_RUNNING, "start");
    emit_round("round_started", start);
    if (agent->options->on_start)
        agent->options->on_start(agent->options->context, start);
    link_set_progress(agent->link, start->generation, -1);
    watchdog_clear(agent->watchdog);
    stuck_start(agent->stuck);
    control_begin_round(agent->control, (int)agent->options->join.slots);
    crew_start(agent->crew, start);
}

static void on_step(void *context, int rank, uint64_t generation, int64_t step)
{
    struct agent *agent = context;

    crew_set_step(agent->crew, rank, generation, step);
    link_set_progress(agent->link, agent->start.generation, crew_min_step(agent->crew));
}

/* Every stop of running workers goes through here. */
static void stop(struct agent *agent, enum agent_after after, int signal,
                 uint64_t grace_ms, const char *why)
{
    if (agent->state == AGENT_RUNNING) {
        agent->after = after;
        set_state(agent, AGENT_STOPPING, why);
        if (after != AFTER_SUCCEED)
            (void)control_ask_to_stop(agent->control, why);
    } else if (after > agent->after) {
        agent->after = after;
    }
    stuck_stop(agent->stuck);
    crew_stop(agent->crew, signal, grace_ms);
}

static void on_failure(void *context, const struct ct_failure *failure)
{
    struct agent *agent = context;
    struct ct_message message = {.kind = CT_MESSAGE_FAILURE};

    message.failure = *failure;
    link_send(agent->link, &message);
    if (agent->drained_by != 0)
        on_drained(agent);
    else if (agent->state == AGENT_RUNNING) /* the link may have failed just now */
        stop(agent, AFTER_REJOIN, SIGTERM, agent->options->grace_ms, "a worker failed");
}

static void on_success(void *context)
{
    struct agent *agent = context;

    if (agent->drained_by != 0)
        on_drained(agent); /* they left early because we asked them to: no success */
    else
        stop(agent, AFTER_SUCCEED, SIGTERM, AGENT_LEFTOVER_MS, "all workers succeeded");
}

/* ---- The end of a round ----------------------------------------------------------------- */

static void send_stopped(struct agent *agent)
{
    struct ct_message message = {.kind = CT_MESSAGE_STOPPED};

    message.stopped.generation = agent->start.generation;
    message.stopped.failure_count = (uint8_t)crew_get_failures(
        agent->crew, message.stopped.failures, CT_FAILURES_MAX);
    link_send(agent->link, &message);
}

/* Nothing runs here any more; goes on as soon as the server has said how. */
static void leave_round(struct agent *agent)
{
    if (agent->stop.reason == 0 || agent->state != AGENT_STOPPING || !agent->is_gone)
        return; /* link lost meanwhile, or its STOP is on the way */
    if (!agent->stop.is_final)
        join(agent);
}

static void finish_round(struct agent *agent)
{
    emit_round("round_stopped", &agent->start);
    close_store(agent);
    agent->is_gone = true;
    send_stopped(agent);
    leave_round(agent);
}

static void succeed(struct agent *agent)
{
    struct ct_message message = {.kind = CT_MESSAGE_SUCCEEDED};

    set_state(agent, AGENT_SUCCEEDED, "all workers succeeded");
    message.succeeded.generation = agent->start.generation;
    link_send(agent->link, &message);
}

static void send_leave(struct agent *agent, const char *why)
{
    struct ct_message message = {.kind = CT_MESSAGE_LEAVE};

    message.leave.generation = agent->start.generation;
    (void)ct_copy(message.leave.reason, sizeof message.leave.reason, why);
    link_send(agent->link, &message);
}

/* A process in the kernel's hands: the node is not fit for another round. */
static void give_up(struct agent *agent)
{
    struct ct_failure failure = {0};
    struct ctrun_error err;

    (void)crew_get_failures(agent->crew, &failure, 1);
    (void)ct_fail(
        &err, CTRUN_E_UNKILLABLE, "%s",
        failure.cause == CT_CAUSE_UNKILLABLE
            ? failure.text
            : "a process that a worker left behind did not die after SIGKILL");
    send_stopped(agent);
    send_leave(agent, err.text);
    fail(agent, &err);
}

static void on_gone(void *context, int survivors)
{
    struct agent *agent = context;

    if (survivors > 0) {
        give_up(agent);
        return;
    }
    switch (agent->after) {
    case AFTER_SUCCEED: succeed(agent); break;
    case AFTER_REJOIN: finish_round(agent); break;
    case AFTER_END:
        emit_round("round_stopped", &agent->start);
        if (agent->result->error.code == 0)
            send_stopped(agent);
        end(agent, "stopped");
        break;
    }
}

/* Ranks that are in a collective with a lost node cannot get out of it by themselves: only
 * their deadline would, in minutes. */
static uint64_t round_grace_ms(const struct agent *agent)
{
    const uint64_t grace_ms = agent->options->grace_ms;

    return agent->stop.reason == CT_STOP_NODE_LOST &&
                   grace_ms > AGENT_NODE_LOST_GRACE_MS
               ? AGENT_NODE_LOST_GRACE_MS
               : grace_ms;
}

/* Our answer to a STOP: that we had it proves that this node was not lost before. */
static void send_stopping(struct agent *agent)
{
    struct ct_message message = {.kind = CT_MESSAGE_STOPPING};

    message.stopping.generation = agent->start.generation;
    link_send(agent->link, &message);
}

/* The second STOP: what follows from the failure that the first one named. */
static void take_decision(struct agent *agent, const struct ct_stop *message)
{
    agent->stop = *message;
    if (agent->options->on_stop)
        agent->options->on_stop(agent->options->context, message);
    if (agent->state == AGENT_STOPPING && !agent->is_gone &&
        message->reason == CT_STOP_NODE_LOST)
        stop(agent, AFTER_REJOIN, SIGTERM, round_grace_ms(agent), "a node is lost");
}

static void take_stop(struct agent *agent, const struct ct_stop *message)
{
    if (message->generation == agent->start.generation &&
        agent->stop.reason == CT_STOP_UNDECIDED && agent->state != AGENT_ENDED) {
        take_decision(agent, message);
        return;
    }
    if (message->generation != agent->start.generation || agent->stop.reason != 0) {
        ct_debug("stop ignored generation=%llu",
                 (unsigned long long)message->generation);
        return;
    }
    agent->stop = *message;
    if (agent->options->on_stop)
        agent->options->on_stop(agent->options->context, message);
    send_stopping(agent);
    switch (agent->state) {
    case AGENT_RUNNING:
        stop(agent, AFTER_REJOIN, SIGTERM, round_grace_ms(agent),
             "the round is stopped");
        break;
    case AGENT_STOPPING:
        if (agent->after == AFTER_SUCCEED)
            agent->after = AFTER_REJOIN;
        leave_round(agent);
        break;
    case AGENT_SUCCEEDED:
        set_state(agent, AGENT_STOPPING, "the round is stopped");
        agent->after = AFTER_REJOIN;
        finish_round(agent);
        break;
    case AGENT_CONNECTING:
    case AGENT_JOINING:
    case AGENT_ENDED: break; /* of a round that we have left */
    }
}

static void take_verdict(struct agent *agent, const struct ct_verdict *verdict)
{
    struct ct_event event;

    agent->result->verdict = *verdict;
    ct_event_begin(&event, "verdict");
    ct_event_int(&event, "generation", (int64_t)verdict->generation);
    ct_event_int(&event, "outcome", verdict->outcome);
    ct_event_int(&event, "exit_code", verdict->exit_code);
    ct_event_int(&event, "restart_count", verdict->restart_count);
    ct_event_int(&event, "failures", verdict->failure_count);
    ct_event_end(&event);
    if (agent->state == AGENT_RUNNING)
        stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms, "the run is over");
    else if (agent->state == AGENT_STOPPING && !agent->is_gone)
        agent->after = AFTER_END;
    else
        end(agent, "verdict");
}

/* ---- Link ------------------------------------------------------------------------------- */

static void on_message(void *context, const struct ct_message *message)
{
    struct agent *agent = context;

    switch ((int)message->kind) {
    case CT_MESSAGE_WAITING: take_waiting(agent, &message->waiting); break;
    case CT_MESSAGE_START: take_start(agent, &message->start); break;
    case CT_MESSAGE_STOP: take_stop(agent, &message->stop); break;
    case CT_MESSAGE_VERDICT: take_verdict(agent, &message->verdict); break;
    default:
        ct_warn("message ignored kind=%s", ct_message_name((int)message->kind));
        break;
    }
}

/* The server takes a broken link for a lost node and will start a world without us: ours must
 * have ended before. */
static void fence(struct agent *agent, const struct ctrun_error *why)
{
    const uint64_t limit_ms = agent->lost_after_ms / 10;
    const uint64_t grace_ms = agent->options->grace_ms;

    agent->result->error = *why;
    stop(agent, AFTER_END, SIGTERM, grace_ms < limit_ms ? grace_ms : limit_ms,
         why->text);
}

static void on_down(void *context, const struct ctrun_error *why)
{
    struct agent *agent = context;
    struct ctrun_error lost = *why;

    if (agent->lost_after_ms > 0 && why->code == CTRUN_E_UNREACHABLE)
        (void)ct_fail(&lost, CTRUN_E_LEADER_LOST, "the rendezvous is gone: %s",
                      why->text);
    switch (agent->state) {
    case AGENT_JOINING: /* nothing runs: it may come back */
        if (why->code != CTRUN_E_LEADER_LOST) {
            fail(agent, &lost);
            break;
        }
        set_state(agent, AGENT_CONNECTING, why->text);
        link_connect(agent->link, agent->options->connect_timeout_ms < LINK_RECONNECT_MS
                                      ? agent->options->connect_timeout_ms
                                      : LINK_RECONNECT_MS);
        break;
    case AGENT_RUNNING: fence(agent, &lost); break;
    case AGENT_STOPPING:
        if (agent->is_gone)
            fail(agent, &lost);
        else if (agent->after != AFTER_END)
            fence(agent, &lost);
        break;
    case AGENT_CONNECTING:
    case AGENT_SUCCEEDED: fail(agent, &lost); break;
    case AGENT_ENDED: break;
    }
}

/* ---- Signals ---------------------------------------------------------------------------- */

static bool is_ending_signal(const struct agent *agent, int signal)
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
    const bool is_same = signal == agent->last_signal &&
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

/* The first ending signal goes to the workers as it is. Further Ctrl-Cs are a person who cannot
 * wait: then SIGTERM with a short grace, then SIGKILL. */
static void end_by_signal(struct agent *agent, int signal, pid_t sender)
{
    const uint64_t grace_ms = agent->options->grace_ms;
    char why[64];

    agent->interrupts += signal == SIGINT;
    if (agent->result->signal == 0) {
        agent->result->signal = signal;
        (void)ct_format(why, sizeof why, "SIG%s from pid %d", sigabbrev_np(signal),
                        sender);
        send_leave(agent, why);
    } else if (signal != SIGINT || agent->interrupts < 2) {
        return;
    }
    if (agent->state != AGENT_RUNNING &&
        (agent->state != AGENT_STOPPING || agent->is_gone)) {
        if (agent->state != AGENT_ENDED)
            end(agent, "signal");
    } else if (agent->interrupts <= 1) {
        stop(agent, AFTER_END, signal, grace_ms, "signal");
    } else if (agent->interrupts == 2) {
        stop(agent, AFTER_END, SIGTERM, AGENT_HURRY_MS, "second interrupt");
    } else {
        stop(agent, AFTER_END, SIGKILL, 0, "third interrupt");
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
    if (is_ending_signal(agent, signal))
        end_by_signal(agent, signal, sender);
    else
        crew_signal(agent->crew, signal);
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
                     : state_names[agent->state],
        .start = &agent->start,
        .waiting = &agent->waiting,
        .crew = agent->crew,
        .born_ms = agent->born_ms,
    };
    const int rc = report_format(out, &report);

    return rc < 0 ? ct_fail(err, rc, "status: %s", strerror(-rc)) : 0;
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
                       state_names[agent->state]);
    emit_request("signal", signal, rank, sender);
    if (rank < 0)
        crew_signal(agent->crew, signal);
    else if ((rc = crew_signal_rank(agent->crew, rank, signal)) < 0)
        return ct_fail(err, rc, "rank %d does not run on this node: it has %u to %u",
                       rank, agent->start.rank_base,
                       agent->start.rank_base + agent->options->join.slots - 1);
    return ct_buf_printf(out, "{\"signalled\":true}");
}

/* Saved, or out of time: from here on it is a SIGTERM like any other. */
static void on_drained(void *context)
{
    struct agent *agent = context;

    loop_timer_stop(agent->drain_timer);
    if (agent->result->signal == 0)
        end_by_signal(agent, SIGTERM, agent->drained_by);
}

/* Workers that speak to us get the grace time to save and leave; others know only SIGTERM. */
static void on_remote_stop(void *context, const char *reason, pid_t sender)
{
    struct agent *agent = context;

    if (agent->drained_by != 0 || agent->state == AGENT_ENDED)
        return;
    emit_request("stop", SIGTERM, -1, sender);
    ct_info("asked to stop reason=%s sender=%d", reason, sender);
    agent->drained_by = sender;
    if (agent->state == AGENT_RUNNING &&
        control_ask_to_stop(agent->control, reason) > 0)
        loop_timer_set(agent->drain_timer, agent->options->grace_ms);
    else
        on_drained(agent);
}

/* Never fatal: the run does not need it. */
static void open_remote(struct agent *agent)
{
    const struct remote_options options = {
        .loop = agent->loop,
        .run_id = agent->options->hello.run_id,
        .context = agent,
        .on_status = on_remote_status,
        .on_signal = on_remote_signal,
        .on_stop = on_remote_stop,
    };
    struct ctrun_error err;

    if (remote_open(&agent->remote, &options, &err) < 0)
        ct_warn("ctrunctl cannot reach this run: %s", err.text);
}

/* ---- Life ------------------------------------------------------------------------------- */

static int open_consoles(struct agent *agent, struct ctrun_error *err)
{
    agent->console_err = console_open(agent->loop, STDERR_FILENO);
    agent->console_out = console_is_same(STDOUT_FILENO, STDERR_FILENO)
                             ? agent->console_err
                             : console_open(agent->loop, STDOUT_FILENO);
    return agent->console_err && agent->console_out
               ? 0
               : ct_fail(err, -ENOMEM, "console: out of memory");
}

static int open_signals(struct agent *agent, struct ctrun_error *err)
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

static int open_crew(struct agent *agent, struct ctrun_error *err)
{
    const struct crew_options options = {
        .loop = agent->loop,
        .agent = agent->options,
        .socket = control_name(agent->control),
        .console_out = agent->console_out,
        .console_err = agent->console_err,
        .context = agent,
        .on_failure = on_failure,
        .on_success = on_success,
        .on_gone = on_gone,
    };
    const int rc = crew_create(&agent->crew, &options);

    return rc < 0 ? ct_fail(err, rc, "crew: %s", strerror(-rc)) : 0;
}

/* ---- File timer ------------------------------------------------------------------------- */

static int parse_timer(void *context, const char *line, size_t length,
                       struct agent_timer *out)
{
    const struct agent_options *options = ((struct agent *)context)->options;

    return options->parse_timer(options->context, line, length, out);
}

static bool is_ours(void *context, pid_t pid)
{
    return crew_has_process(((struct agent *)context)->crew, pid);
}

static void on_expired(void *context, pid_t pid, const char *scope, int signal)
{
    crew_expire(((struct agent *)context)->crew, pid, scope, signal);
}

static int open_watchdog(struct agent *agent, struct ctrun_error *err)
{
    const struct watchdog_options options = {
        .loop = agent->loop,
        .path = agent->options->timer_file,
        .grace_ms = agent->options->grace_ms,
        .context = agent,
        .parse = parse_timer,
        .is_ours = is_ours,
        .on_expired = on_expired,
    };

    return options.path ? watchdog_open(&agent->watchdog, &options, err) : 0;
}

/* ---- Uninterruptible sleep -------------------------------------------------------------- */

/* As with a process that does not die: this node is not fit for another round. */
static void on_stuck(void *context, pid_t process, pid_t thread, const char *where,
                     uint64_t for_ms)
{
    struct agent *agent = context;
    struct ctrun_error *err = &agent->result->error;

    if (agent->state != AGENT_RUNNING)
        return;
    (void)ct_fail(
        err, CTRUN_E_UNKILLABLE,
        "rank %d: pid %d thread %d has been in uninterruptible sleep (state D) "
        "for %.1f s, kernel %s",
        crew_find_rank(agent->crew, process), process, thread, (double)for_ms / 1000,
        where);
    send_leave(agent, err->text);
    stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms,
         "a worker is stuck in the kernel");
}

static int open_stuck(struct agent *agent, struct ctrun_error *err)
{
    const struct stuck_options options = {
        .loop = agent->loop,
        .limit_ms = agent->options->stuck_limit_ms,
        .context = agent,
        .on_stuck = on_stuck,
    };

    if (options.limit_ms == 0 || stuck_create(&agent->stuck, &options) == 0)
        return 0;
    return ct_fail(err, -ENOMEM, "state D check: out of memory");
}

static int open_all(struct agent *agent, struct ctrun_error *err)
{
    const struct agent_options *options = agent->options;
    const struct control_options control = {
        .loop = agent->loop, .context = agent, .on_step = on_step};
    const struct link_options link = {
        .loop = agent->loop,
        .servers = options->server,
        .server_count = options->server_count,
        .hello = &options->hello,
        .token = options->token,
        .context = agent,
        .on_up = on_up,
        .on_message = on_message,
        .on_down = on_down,
        .on_connecting = on_connecting,
    };
    int rc;

    if ((rc = open_consoles(agent, err)) < 0 ||
        (rc = control_open(&agent->control, &control, err)) < 0 ||
        (rc = open_crew(agent, err)) < 0 || (rc = open_watchdog(agent, err)) < 0 ||
        (rc = open_stuck(agent, err)) < 0 ||
        (rc = link_open(&agent->link, &link, err)) < 0)
        return rc;
    if (!(agent->drain_timer = loop_timer_open(agent->loop, on_drained, agent)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    open_remote(agent);
    return open_signals(agent, err); /* last: from here on they find everything there */
}

static void close_all(struct agent *agent)
{
    remote_close(agent->remote); /* first: nobody finds us while we end */
    loop_timer_close(agent->drain_timer);
    link_close(agent->link, AGENT_HURRY_MS);
    close_store(agent);
    watchdog_close(agent->watchdog);
    stuck_destroy(agent->stuck);
    control_close(agent->control);
    crew_destroy(agent->crew);
    signals_close(agent->signals);
    if (agent->console_out)
        console_flush(agent->console_out, OUTPUT_FLUSH_MS);
    if (agent->console_err)
        console_flush(agent->console_err, OUTPUT_FLUSH_MS);
    if (agent->console_out != agent->console_err)
        console_close(agent->console_out);
    console_close(agent->console_err);
}

/* What no server's verdict says: how this node's workers ended when we left by ourselves. */
static void fill_verdict(struct agent *agent)
{
    struct ct_verdict *verdict = &agent->result->verdict;

    if (verdict->outcome != 0 || !agent->crew)
        return;
    verdict->generation = agent->start.generation;
    verdict->outcome = CT_OUTCOME_CLOSED;
    verdict->restart_count = agent->start.restart_count;
    verdict->exit_code = (uint8_t)(agent->result->signal
                                       ? CT_EXIT_SIGNAL + agent->result->signal
                                       : CT_EXIT_RETRY);
    verdict->failure_count = (uint8_t)crew_get_failures(agent->crew, verdict->failures,
                                                        CT_FAILURES_MAX);
}

static int check(const struct agent_options *options, struct ctrun_error *err)
{
    if (options->join.slots < 1 || options->join.slots > AGENT_WORKERS_MAX)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%u workers on one node: 1 to %d are possible",
                       options->join.slots, AGENT_WORKERS_MAX);
    if (options->signal_count > NSIG - 2)
        return ct_fail(err, CTRUN_E_USAGE, "%zu signals: too many",
                       options->signal_count);
    return 0;
}

int agent_run(const struct agent_options *options, struct agent_result *result,
              struct ctrun_error *err)
{
    struct agent agent = {.options = options, .result = result, .born_ms = ct_now_ms()};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    int rc;

    memset(result, 0, sizeof *result);
    if ((rc = check(options, err)) < 0)
        return rc;
    if ((rc = loop_create(&agent.loop)) < 0)
        return ct_fail(err, rc, "loop: %s", strerror(-rc));
    (void)prctl(PR_SET_CHILD_SUBREAPER,
                1); /* the guard has seen to it, where there is one */
    (void)sigaction(SIGPIPE, &ignore,
                    &before); /* a console that goes away is no reason to die */
    rc = open_all(&agent, err);
    if (rc == 0) {
        link_connect(agent.link, options->connect_timeout_ms);
        loop_run(agent.loop);
        fill_verdict(&agent);
    }
    close_all(&agent);
    if (loop_destroy(agent.loop) < 0)
        ct_err("agent: something was left open on the loop");
    (void)sigaction(SIGPIPE, &before, NULL);
    return rc;
}
