/* SPDX-License-Identifier: Apache-2.0 */
/* This node leaves the run: a signal, ctrunctl, the end of the allocation. */
#include <signal.h>
#include <unistd.h>

#include "agent/node/agent_private.h"
#include "agent/process/process_name.h"

bool agent_is_ending_signal(const struct agent *agent, int signal)
{
    for (size_t i = 0; i < agent->options->signal_count; i++)
        if (agent->options->signals[i] == signal)
            return true;
    return false;
}

void agent_emit_request(const char *verb, int signal, int rank, const char *reason,
                        pid_t sender)
{
    ct_event_emit("control_request", CT_STR("verb", verb), CT_INT("signal", signal),
                  CT_INT("rank", rank), CT_STR("reason", reason),
                  CT_INT("sender_pid", sender));
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

/* A stop of the whole job leaves more time than a new round does. */
static void stop_for_good(struct agent *agent, int signal, uint64_t grace_ms,
                          const char *why)
{
    agent_stop(agent, AFTER_END, signal, grace_ms, why);
    if (agent->result->error.code == 0) /* else the fence is near: be quick */
        worker_group_extend(agent->group, grace_ms);
}

/* The first ending signal is passed to the workers unchanged. A further Ctrl-C means that the user
 * does not want to wait: then SIGTERM with a short grace, then SIGKILL. */
void agent_end_by_signal(struct agent *agent, int signal, pid_t sender)
{
    const uint64_t grace_ms = agent_signal_grace_ms(agent);
    char why[256];

    agent->interrupts += signal == SIGINT;
    if (agent->result->signal == 0) {
        if (agent->drained_by != 0) /* no signal has come */
            (void)ct_format(why, sizeof why, "asked to: %s", agent->result->reason);
        else
            (void)ct_copy(
                why, sizeof why,
                process_describe_sender(agent->result->sender, signal, sender));
        begin_end(agent, signal, grace_ms, why);
    } else if (signal != SIGINT || agent->interrupts < 2) {
        return;
    } else {
        loop_timer_stop(agent->countdown); /* its time is not what is left now */
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
    if (is_ending) { /* the stop may end earlier, not later */
        if (ct_deadline_ms(grace_ms) < agent->grace_deadline_ms)
            agent->grace_deadline_ms = ct_deadline_ms(grace_ms);
        agent_stop(agent, AFTER_END, signal, grace_ms, why);
    } else {
        stop_for_good(agent, signal, grace_ms, why);
    }
}

void agent_give_up(struct agent *agent, const struct ctrun_error *why)
{
    agent_send_leave(agent, why->text);
    if (agent->result->error.code == 0)
        agent->result->error = *why;
    if (has_workers(agent, why->text))
        agent_stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms, why->text);
}

void agent_drained(void *context)
{
    struct agent *agent = context;

    loop_timer_stop(agent->drain_timer);
    agent->has_drained = true;
    if (agent->result->signal == 0)
        agent_end_by_signal(agent, SIGTERM, agent->drained_by);
}

/* The run cannot continue without the server of this node, unless another one can be found. */
static void drain_all(struct agent *agent, const char *reason)
{
    struct ct_drain drain = {0};

    if (!agent->options->serves_rendezvous || agent->options->is_alone ||
        agent_may_find(agent))
        return;
    (void)ct_copy(drain.reason, sizeof drain.reason, reason); /* cut is fine */
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_DRAIN, .drain = &drain});
}

void agent_drain(struct agent *agent, const char *reason, pid_t sender)
{
    if (agent->drained_by != 0 || agent->state == AGENT_ENDED)
        return;
    agent_emit_request("stop", SIGTERM, -1, reason, sender);
    ct_info("asked to stop reason=%s sender=%d", reason, sender);
    agent->drained_by = sender;
    (void)ct_copy(agent->result->reason, sizeof agent->result->reason, reason);
    drain_all(agent, reason); /* before our LEAVE */
    if (agent->state == AGENT_RUNNING &&
        worker_socket_ask_to_stop(agent->worker_socket, reason) > 0)
        loop_timer_set(agent->drain_timer, agent->options->grace_ms);
    else
        agent_drained(agent);
}
