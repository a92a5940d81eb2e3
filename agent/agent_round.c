/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds: messages of the server about them, and the ends of workers. enum agent_after says
 * what follows when the last worker of a round is gone: it is set when the stop begins, and a later
 * event may change it. */
#include <signal.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/postmortem/unkillable.h"
#include "agent/worker/worker.h"

/* ---- A round ---------------------------------------------------------------------------- */

/* A START counts once: its generation is above all that this agent has had. */
void agent_on_start(struct agent *agent, const struct ct_start *start)
{
    if (agent->state != AGENT_JOINING || start->generation <= agent->start.generation) {
        ct_warn("start ignored generation=%llu state=%s",
                (unsigned long long)start->generation, agent_state_name(agent));
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
    /* The last lines of the previous round have that round's ranks. */
    agent_flush_dedup(agent, false);
    agent->start = *start;
    memset(&agent->stop, 0, sizeof agent->stop);
    agent->timeout_view = (struct ct_hang_view){0};
    agent->unreachable[0] = '\0';
    if (start->is_new) /* this agent may have been in this round before */
        agent->survival.generation = 0;
    agent->is_gone = agent->reload_waits = false;
    agent->waiting = (struct ct_waiting){0};
    agent_set_state(agent, AGENT_RUNNING, "start");
    agent_bill_end_phase(agent, BILL_MEET);
    link_set_progress(agent->link, start->generation, -1);
    worker_group_reset(agent->group, start);
    agent_find_reachability(agent);
}

static void on_failure(void *context, const struct ct_failure *failure)
{
    struct ct_failure reported = *failure;

    if (agent_fails_outside(context, failure))
        return;
    agent_look_after_timeout(context, failure, &reported);
    agent_report_failure(context, &reported);
}

static void on_started(void *context)
{
    struct agent *agent = context;

    agent_bill_end_phase(agent, BILL_START);
    if (agent->start.is_new)
        agent_send_still(agent); /* the other nodes do not wait for our workers */
}

/* Not in a round that is about to be stopped: the workers were asked to save and end, or a rank is
 * stuck. */
static bool restarts_alone(void *context, const struct ct_failure *failure)
{
    const struct agent *agent = context;
    const struct agent_options *options = agent->options;

    return agent_is_undisturbed(agent) && options->restarts_alone &&
           options->restarts_alone(options->context, &agent->start, failure);
}

/* This process was stopped for longer than its lease, and the guard has killed the workers. The
 * workers have not failed; a world without this node may run. */
static void on_fenced(void *context)
{
    struct agent *agent = context;

    if (agent->state == AGENT_RUNNING)
        agent_stop(agent, AFTER_REJOIN, SIGKILL, 0,
                   "the guard has ended the workers while this agent was stopped");
}

static const char *name_success(const struct agent *agent)
{
    return agent_has_lost_all(agent) ? "all workers are lost" : "all workers succeeded";
}

static void on_success(void *context)
{
    struct agent *agent = context;

    if (agent->drained_by != 0)
        agent_drained(agent); /* they left early because we asked them to: no success */
    else if (agent_is_outside(agent)) /* the limit of restarts is used up */
        agent_stop_outside(agent, "none of them runs");
    else
        agent_stop(agent, AFTER_SUCCEED, SIGTERM, AGENT_ORPHAN_MS, name_success(agent));
}

/* ---- The end of a round ----------------------------------------------------------------- */

/* No worker runs here any more; continues as soon as the server has said how. */
static void leave_round(struct agent *agent)
{
    if (agent->stop.reason == 0 || agent->state != AGENT_STOPPING || !agent->is_gone)
        return; /* link lost meanwhile, or the server's STOP is on the way */
    if (!agent->stop.is_final)
        agent_join_later(agent);
}

static void finish_round(struct agent *agent)
{
    agent_emit_round(agent, "round_stopped");
    agent_close_store(agent);
    agent->is_gone = true;
    agent_send_stopped(agent);
    leave_round(agent);
}

static void succeed(struct agent *agent)
{
    agent_set_state(agent, AGENT_SUCCEEDED, name_success(agent));
    agent_send_succeeded(agent);
}

/* That of a worker, or of a process that a worker left behind. */
static void find_unkillable(const struct agent *agent, struct ct_failure *out)
{
    const char *host = agent->options->hello.host;
    char where[UNKILLABLE_WHERE_MAX];

    for (int i = 0; i < worker_group_count(agent->group); i++) {
        *out = worker_group_worker(agent->group, i)->failure;
        if (out->cause == CT_CAUSE_UNKILLABLE)
            return;
    }
    *out = (struct ct_failure){.generation = agent->start.generation,
                               .cause = CT_CAUSE_UNKILLABLE,
                               .code = SIGKILL,
                               .rank = -1,
                               .local_rank = -1,
                               .node_rank = (int32_t)agent->start.group_rank,
                               .pid = unkillable_find(),
                               .restart_count = agent->start.restart_count,
                               .wall_ns = ct_wall_ns(),
                               .step = -1};
    unkillable_describe(where, out->pid);
    (void)ct_copy(out->host, sizeof out->host, host); /* same size */
    (void)ct_format(
        out->text, sizeof out->text,
        "pid %d on %s, which a worker left behind, did not die after SIGKILL: %s",
        (int)out->pid, host, where); /* fits */
}

/* The kernel does not release a process: this node cannot run another round, nor can the others
 * while it lives. STOPPED has failures of workers only, and room for some: so the server is told
 * before. */
static void give_up(struct agent *agent)
{
    struct ctrun_error err;

    find_unkillable(agent, &agent->failure);
    agent_add_calls(agent, &agent->failure);
    agent_send_failure(agent);
    agent_send_stopped(agent);
    (void)ct_fail(&err, CTRUN_E_UNKILLABLE, "%s", agent->failure.text);
    agent_send_leave(agent, err.text);
    agent_fail(agent, &err);
}

/* The last worker is gone, and the guard has no process left to end. The next workers may have been
 * started when this returns. */
static void on_gone(void *context, int survivors)
{
    struct agent *agent = context;

    fence_disarm();
    agent_bill_end_phase(agent, BILL_STOP);
    if (survivors > 0) {
        give_up(agent);
        return;
    }
    if (agent_goes_on_when_gone(agent))
        return;
    switch (agent->after) {
    case AFTER_SUCCEED: succeed(agent); break;
    case AFTER_REJOIN: finish_round(agent); break;
    case AFTER_RETURN: break; /* continued */
    case AFTER_END:
        agent_emit_round(agent, "round_stopped");
        agent_send_stopped(agent);
        agent_end(agent, "stopped");
        break;
    }
}

/* Ranks in a collective with a lost node cannot leave it by themselves, and would lose there the
 * grace time that they need to save. */
static void send_loss(struct agent *agent)
{
    const struct ct_failure *loss = &agent->stop.cause;
    char text[192];

    if (agent->stop.reason != CT_STOP_NODE_LOST)
        return;
    (void)ct_format(text, sizeof text, "node %.64s is lost: %.100s", loss->host,
                    loss->text);
    worker_socket_send_loss(agent->worker_socket, text);
}

/* The second STOP: what the server decided after the failure that the first one named. */
static void on_decision(struct agent *agent, const struct ct_stop *message)
{
    agent->stop = *message;
    agent_bill_end_phase(agent, BILL_DECIDE);
    agent_note_samples(message);
    if (agent->options->on_stop)
        agent->options->on_stop(agent->options->context, message);
    if (agent->state == AGENT_STOPPING && !agent->is_gone &&
        message->reason == CT_STOP_NODE_LOST)
        send_loss(agent);
}

/* If all workers are asked at once, they may still save together. */
static void stop_round(struct agent *agent, const struct ct_stop *message)
{
    static const char why[] = "the round is stopped";
    const struct agent_options *options = agent->options;

    if (message->reason == CT_STOP_MEMBERSHIP || message->reason == CT_STOP_ASKED ||
        message->reason == CT_STOP_NETWORK)
        agent_stop(agent, AFTER_REJOIN, SIGTERM, options->grace_ms, why);
    else {
        agent_save_calls(agent); /* while the ranks are still where they were */
        agent_look_after_timeout(agent, &message->cause, NULL);
        agent_stop_survivors(agent, AFTER_REJOIN, options->survivor_grace_ms,
                             options->grace_ms, why);
    }
}

/* The answer, STOPPING, proves that this node was not lost before. The server decides when it has the last STOPPING, so
 * what only we know is sent before it: a worker that is dead but not reaped, one that raised first, a rank that is
 * further behind. The workers are stopped last: that may call on_gone() before it returns. */
void agent_on_stop(struct agent *agent, const struct ct_stop *message)
{
    if (message->generation == agent->start.generation &&
        agent->stop.reason == CT_STOP_UNDECIDED && agent->state != AGENT_ENDED) {
        if (message->reason != CT_STOP_UNDECIDED) /* else it came before a break */
            on_decision(agent, message);
        return;
    }
    if (message->generation != agent->start.generation || agent->stop.reason != 0) {
        ct_debug("stop ignored generation=%llu",
                 (unsigned long long)message->generation);
        return;
    }
    if (agent->state == AGENT_RUNNING)
        worker_group_reap(agent->group, 0); /* may end the run: check the state anew */
    if (agent->state == AGENT_RUNNING && message->reason == CT_STOP_UNDECIDED &&
        !agent_is_outside(agent))
        agent_send_raised(agent);
    if (agent->state == AGENT_RUNNING)
        (void)agent_send_worse(agent, message);
    if (agent->state == AGENT_ENDED)
        return;
    agent->stop = *message;
    agent_bill_stop(agent, false);
    if (message->reason != CT_STOP_UNDECIDED)
        agent_bill_end_phase(agent, BILL_DECIDE);
    agent_note_restart(message);
    agent_note_samples(message);
    if (agent->options->on_stop)
        agent->options->on_stop(agent->options->context, message);
    agent_send_stopping(agent);
    switch (agent->state) {
    case AGENT_RUNNING:
        send_loss(agent);
        if (!agent_saves_stacks(agent, message))
            stop_round(agent, message);
        break;
    case AGENT_STOPPING:
        if (agent->after == AFTER_SUCCEED)
            agent->after = AFTER_REJOIN;
        leave_round(agent);
        break;
    case AGENT_SUCCEEDED:
        agent_set_state(agent, AGENT_STOPPING, "the round is stopped");
        agent->after = AFTER_REJOIN;
        agent_bill_end_phase(agent, BILL_STOP); /* no worker was left to stop */
        finish_round(agent);
        break;
    case AGENT_CONNECTING:
    case AGENT_JOINING:
    case AGENT_ENDED: break; /* of a round that this node has left */
    }
}

/* The run is over. The agent ends when no worker runs any more. */
void agent_on_verdict(struct agent *agent, const struct ct_verdict *verdict)
{
    agent->result->verdict = *verdict;
    ct_event_emit("verdict", CT_INT("generation", verdict->generation),
                  CT_INT("outcome", verdict->outcome),
                  CT_INT("exit_code", verdict->exit_code),
                  CT_INT("restart_count", verdict->restart_count),
                  CT_INT("failures", verdict->failure_count));
    if (agent->state == AGENT_RUNNING)
        agent_stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms,
                   "the run is over");
    else if (agent->state == AGENT_STOPPING && !agent->is_gone)
        agent->after = AFTER_END;
    else
        agent_end(agent, "verdict");
}

/* ---- Wiring --------------------------------------------------------------------------- */

/* The group keeps pointers to the options and to what open_all() has opened before it. */
int agent_open_worker_group(struct agent *agent, struct ctrun_error *err)
{
    const struct worker_group_options options = {
        .loop = agent->loop,
        .workers = &agent->options->workers,
        .join = &agent->options->join,
        .host = agent->options->hello.host,
        .is_one_node = agent->options->hello.max_nodes == 1,
        .socket = worker_socket_name(agent->worker_socket),
        .worker_socket = agent->worker_socket,
        .recorder = agent_recorder(agent),
        .console_out = agent->console_out,
        .console_err = agent->console_err,
        .dedup_out = agent->dedup_out,
        .dedup_err = agent->dedup_err,
        .context = agent,
        .on_started = on_started,
        .on_failure = on_failure,
        .restarts_alone = restarts_alone,
        .survives = agent->options->survive_ms ? agent_survives : NULL,
        .on_fewer = agent->options->survive_ms ? agent_on_fewer : NULL,
        .replaces = agent->options->survive_replace ? agent_replaces : NULL,
        .on_fenced = on_fenced,
        .on_success = on_success,
        .on_gone = on_gone,
    };
    const int rc = worker_group_create(&agent->group, &options);

    return rc < 0 ? ct_fail(err, rc, "workers: %s", strerror(-rc)) : 0;
}
