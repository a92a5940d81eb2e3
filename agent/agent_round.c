/* SPDX-License-Identifier: Apache-2.0 */
/* The state that agent.h draws, and the rounds. What happens when the last worker of a round is
 * gone is decided when its stop begins or is overruled: enum agent_after. */
#include <signal.h>
#include <string.h>

#include "agent/agent_private.h"
#include "agent/unkillable.h"

static const char *const state_names[] = {"connecting", "joining",   "running",
                                          "stopping",   "succeeded", "ended"};

static const unsigned edges[] = {
    [AGENT_CONNECTING] = 1u << AGENT_JOINING | 1u << AGENT_ENDED,
    [AGENT_JOINING] = 1u << AGENT_CONNECTING | 1u << AGENT_RUNNING | 1u << AGENT_ENDED,
    [AGENT_RUNNING] = 1u << AGENT_STOPPING,
    [AGENT_STOPPING] = 1u << AGENT_SUCCEEDED | 1u << AGENT_JOINING |
                       1u << AGENT_CONNECTING | 1u << AGENT_ENDED,
    [AGENT_SUCCEEDED] = 1u << AGENT_STOPPING | 1u << AGENT_ENDED,
    [AGENT_ENDED] = 0,
};

const char *agent_state_name(enum agent_state state)
{
    return state_names[state];
}

void agent_set_state(struct agent *agent, enum agent_state state, const char *why)
{
    struct ct_event event;

    if (agent->state == state)
        return;
    if (!(edges[agent->state] & 1u << state))
        ct_err("agent: no way from=%s to=%s", agent_state_name(agent->state),
               agent_state_name(state));
    ct_debug("agent: %s -> %s (%s)", agent_state_name(agent->state),
             agent_state_name(state), why);
    ct_event_begin(&event, "agent_state");
    ct_event_str(&event, "from", agent_state_name(agent->state));
    ct_event_str(&event, "to", agent_state_name(state));
    ct_event_str(&event, "why", why);
    ct_event_end(&event);
    agent->state = state;
}

void agent_end(struct agent *agent, const char *why)
{
    agent_set_state(agent, AGENT_ENDED, why);
    loop_stop(agent->loop);
}

void agent_fail(struct agent *agent, const struct ctrun_error *why)
{
    if (agent->result->error.code == 0)
        agent->result->error = *why;
    agent_end(agent, why->text);
}

void agent_close_store(struct agent *agent)
{
    if (agent->has_store)
        agent->options->close_store(agent->options->context, agent->store);
    agent->has_store = false;
}

/* ---- Joining ---------------------------------------------------------------------------- */

/* Whom this node has followed before: no world here while that one's may live. */
static void send_claim(struct agent *agent)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_CLAIM);
    if (agent->options->claim.key == 0)
        return;
    message.claim = agent->options->claim;
    message.claim.generation = agent->heirs.generation;
    message.claim.world = agent->world;
    message.claim.world_server = agent->world_server;
    message.claim.age_ms = link_echo_age_ms(agent->link, &message.claim.server);
    link_send(agent->link, &message);
}

void agent_send_join(struct agent *agent)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_JOIN);
    message.join = agent->join;
    link_send(agent->link, &message);
}

void agent_join(struct agent *agent)
{
    const struct agent_options *options = agent->options;
    struct ctrun_error err;

    if (agent->drained_by != 0) { /* its round was stopped while the workers saved */
        agent_drained(agent);
        return;
    }
    agent->join = options->join;
    agent_close_store(agent);
    if (options->open_store &&
        options->open_store(options->context, &agent->join.store_port, &agent->store,
                            &err) < 0) {
        agent_fail(agent, &err);
        return;
    }
    agent->has_store = options->open_store != NULL;
    agent->join_ms = ct_now_ms();
    agent_set_state(agent, AGENT_JOINING, "ready for a round");
    send_claim(agent);
    agent_send_join(agent);
}

void agent_take_waiting(struct agent *agent, const struct ct_waiting *waiting)
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

void agent_take_start(struct agent *agent, const struct ct_start *start)
{
    if (agent->state != AGENT_JOINING || start->generation <= agent->start.generation) {
        ct_warn("start ignored generation=%llu state=%s",
                (unsigned long long)start->generation, agent_state_name(agent->state));
        return;
    }
    if (start->role_count != agent->options->join.roles.count) {
        struct ctrun_error err;

        (void)ct_fail(&err, CTRUN_E_PROTOCOL,
                      "the rendezvous has places for %d roles, this node has %d",
                      start->role_count, agent->options->join.roles.count);
        agent_fail(agent, &err);
        return;
    }
    agent_flush_chorus(agent,
                       false); /* the last words of the round before have its ranks */
    agent->start = *start;
    agent->world = start->generation;
    (void)link_echo_age_ms(agent->link, &agent->world_server);
    agent_has_followed(agent);
    memset(&agent->stop, 0, sizeof agent->stop);
    agent->is_gone = false;
    agent->waiting.max_nodes = 0;
    agent_set_state(agent, AGENT_RUNNING, "start");
    link_set_progress(agent->link, start->generation, -1);
    crew_reset(agent->crew, start);
    agent_find_way(agent);
}

void agent_start_workers(struct agent *agent)
{
    const struct ct_start *start = &agent->start;

    emit_round("round_started", start);
    if (agent->options->on_start)
        agent->options->on_start(agent->options->context, start);
    if ((!agent->options->hosts_server || agent->has_yielded) &&
        agent->lost_after_ms > 0)
        fence_arm(link_lease_ms(agent->link), agent->lost_after_ms);
    watchdog_clear(agent->watchdog);
    stuck_start(agent->stuck);
    agent_start_hang(agent);
    control_begin_round(agent->control, (int)agent->options->join.slots);
    crew_start(agent->crew, start);
}

static void on_step(void *context, int rank, uint64_t generation, int64_t step)
{
    struct agent *agent = context;

    crew_set_step(agent->crew, rank, generation, step);
    link_set_progress(agent->link, agent->start.generation, crew_min_step(agent->crew));
}

void agent_stop(struct agent *agent, enum agent_after after, int signal,
                uint64_t grace_ms, const char *why)
{
    if (agent->state == AGENT_RUNNING) {
        agent->after = after;
        agent_set_state(agent, AGENT_STOPPING, why);
        if (after != AFTER_SUCCEED)
            (void)control_ask_to_stop(agent->control, why);
    } else if (after > agent->after) {
        agent->after = after;
    }
    way_cancel(agent->way);
    stuck_stop(agent->stuck);
    agent_stop_hang(agent);
    crew_stop(agent->crew, signal, grace_ms);
}

void agent_tell_failure(struct agent *agent, const struct ct_failure *failure)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_FAILURE);
    message.failure = agent->failure = *failure;
    crew_set_age(&message.failure);
    link_send(agent->link, &message);
    if (agent->drained_by != 0)
        agent_drained(agent);
    else if (agent->state == AGENT_RUNNING) /* the link may have failed just now */
        agent_stop(agent, AFTER_REJOIN, SIGTERM, agent->options->grace_ms,
                   "a worker failed");
}

static void on_failure(void *context, const struct ct_failure *failure)
{
    agent_tell_failure(context, failure);
}

/* Not in a round that is about to be stopped: asked to save and end, or a rank is stuck. */
static bool restarts_alone(void *context, const struct ct_failure *failure)
{
    const struct agent *agent = context;
    const struct agent_options *options = agent->options;

    return agent->state == AGENT_RUNNING && agent->drained_by == 0 &&
           agent->stop.reason == 0 && options->restarts_alone &&
           options->restarts_alone(options->context, &agent->start, failure);
}

static void on_fenced(void *context)
{
    struct agent *agent = context;

    if (agent->state == AGENT_RUNNING)
        agent_stop(agent, AFTER_REJOIN, SIGKILL, 0,
                   "the guard has ended the workers while this agent was stopped");
}

static void on_success(void *context)
{
    struct agent *agent = context;

    if (agent->drained_by != 0)
        agent_drained(agent); /* they left early because we asked them to: no success */
    else
        agent_stop(agent, AFTER_SUCCEED, SIGTERM, AGENT_LEFTOVER_MS,
                   "all workers succeeded");
}

/* ---- The end of a round ----------------------------------------------------------------- */

void agent_send_stopped(struct agent *agent)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_STOPPED);
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
        agent_join(agent);
}

static void finish_round(struct agent *agent)
{
    emit_round("round_stopped", &agent->start);
    agent_close_store(agent);
    agent->is_gone = true;
    if (agent->joins_when_gone) {
        agent_take_host(agent);
        return;
    }
    agent_send_stopped(agent);
    leave_round(agent);
}

void agent_send_succeeded(struct agent *agent)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_SUCCEEDED);
    message.succeeded.generation = agent->start.generation;
    link_send(agent->link, &message);
}

static void succeed(struct agent *agent)
{
    agent_set_state(agent, AGENT_SUCCEEDED, "all workers succeeded");
    agent_send_succeeded(agent);
}

void agent_send_leave(struct agent *agent, const char *why)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_LEAVE);
    message.leave.generation = agent->start.generation;
    (void)ct_copy(message.leave.reason, sizeof message.leave.reason, why);
    (void)ct_format(agent->leave_reason, sizeof agent->leave_reason, "%.100s", why);
    link_send(agent->link, &message);
}

/* A process in the kernel's hands: the node is not fit for another round. */
static void give_up(struct agent *agent)
{
    struct ct_failure failures[CT_FAILURES_MAX];
    const int count = crew_get_failures(agent->crew, failures, CT_FAILURES_MAX);
    struct ctrun_error err;
    char where[UNKILLABLE_WHERE_MAX];
    pid_t pid;
    int i = 0;

    while (i < count && failures[i].cause != CT_CAUSE_UNKILLABLE)
        i++;
    if (i < count) {
        (void)ct_fail(&err, CTRUN_E_UNKILLABLE, "%s", failures[i].text);
    } else {
        pid = unkillable_find();
        unkillable_describe(where, pid);
        (void)ct_fail(
            &err, CTRUN_E_UNKILLABLE,
            "pid %d, which a worker left behind, did not die after SIGKILL: %s",
            (int)pid, where);
    }
    agent_send_stopped(agent);
    agent_send_leave(agent, err.text);
    agent_fail(agent, &err);
}

static void on_gone(void *context, int survivors)
{
    struct agent *agent = context;

    fence_disarm();
    if (survivors > 0) {
        give_up(agent);
        return;
    }
    switch (agent->after) {
    case AFTER_SUCCEED: succeed(agent); break;
    case AFTER_REJOIN: finish_round(agent); break;
    case AFTER_RETURN:
        emit_round("round_stopped", &agent->start);
        agent_return(agent);
        break;
    case AFTER_END:
        emit_round("round_stopped", &agent->start);
        if (agent->result->error.code == 0)
            agent_send_stopped(agent);
        agent_end(agent, "stopped");
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

void agent_send_stopping(struct agent *agent)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_STOPPING);
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
        agent_stop(agent, AFTER_REJOIN, SIGTERM, round_grace_ms(agent),
                   "a node is lost");
}

void agent_take_stop(struct agent *agent, const struct ct_stop *message)
{
    if (message->generation == agent->start.generation &&
        agent->stop.reason == CT_STOP_UNDECIDED && agent->state != AGENT_ENDED) {
        if (message->reason != CT_STOP_UNDECIDED) /* else we had it before a break */
            take_decision(agent, message);
        return;
    }
    if (message->generation != agent->start.generation || agent->stop.reason != 0) {
        ct_debug("stop ignored generation=%llu",
                 (unsigned long long)message->generation);
        return;
    }
    if (agent->state == AGENT_RUNNING)
        crew_reap(agent->crew); /* who was dead by now is told before the answer */
    if (agent->state == AGENT_ENDED)
        return;
    agent->stop = *message;
    agent_note_restart(message);
    if (agent->options->on_stop)
        agent->options->on_stop(agent->options->context, message);
    agent_send_stopping(agent);
    switch (agent->state) {
    case AGENT_RUNNING:
        if (!agent_saves_stacks(agent, message))
            agent_stop(agent, AFTER_REJOIN, SIGTERM, round_grace_ms(agent),
                       "the round is stopped");
        break;
    case AGENT_STOPPING:
        if (agent->after == AFTER_SUCCEED)
            agent->after = AFTER_REJOIN;
        leave_round(agent);
        break;
    case AGENT_SUCCEEDED:
        agent_set_state(agent, AGENT_STOPPING, "the round is stopped");
        agent->after = AFTER_REJOIN;
        finish_round(agent);
        break;
    case AGENT_CONNECTING:
    case AGENT_JOINING:
    case AGENT_ENDED: break; /* of a round that we have left */
    }
}

void agent_take_verdict(struct agent *agent, const struct ct_verdict *verdict)
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
        agent_stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms,
                   "the run is over");
    else if (agent->state == AGENT_STOPPING && !agent->is_gone)
        agent->after = AFTER_END;
    else
        agent_end(agent, "verdict");
}

/* ---- Wiring --------------------------------------------------------------------------- */

int agent_open_crew(struct agent *agent, struct ctrun_error *err)
{
    const struct crew_options options = {
        .loop = agent->loop,
        .agent = agent->options,
        .socket = control_name(agent->control),
        .control = agent->control,
        .console_out = agent->console_out,
        .console_err = agent->console_err,
        .chorus_out = agent->chorus_out,
        .chorus_err = agent->chorus_err,
        .context = agent,
        .on_failure = on_failure,
        .restarts_alone = restarts_alone,
        .on_fenced = on_fenced,
        .on_success = on_success,
        .on_gone = on_gone,
    };
    const int rc = crew_create(&agent->crew, &options);

    return rc < 0 ? ct_fail(err, rc, "crew: %s", strerror(-rc)) : 0;
}

int agent_open_control(struct agent *agent, struct ctrun_error *err)
{
    const struct control_options options = {
        .loop = agent->loop, .context = agent, .on_step = on_step};

    return control_open(&agent->control, &options, err);
}
