/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a user to a run: signals, and ctrunctl. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/report.h"
#include "worker_sdk/base/signal_name.h"

enum {
    WHY_MAX_BYTES = 8192
};

/* ---- Signals ---------------------------------------------------------------------------- */

/* The guard and a scheduler that signals every process of a step may both deliver the same signal:
 * it counts once. */
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
    char name[CT_SIGNAL_NAME_MAX];

    ct_event_emit("signal", CT_INT("signal", signal), CT_INT("sender_pid", sender));
    ct_info("signal received signal=%s sender=%d", ct_signal_format(name, signal),
            sender);
}

/* Runs on the loop, not in a signal handler: it may call any function. */
static void on_signal(void *context, int signal, pid_t sender)
{
    struct agent *agent = context;

    if (signal == SIGCHLD) {
        if (agent->state !=
            AGENT_ENDED) /* else sockets that a reap needs may be closed */
            worker_group_reap(agent->group, sender);
        agent_look_early(agent);
        return;
    }
    if (signal == SIGWINCH) {
        worker_group_resize(agent->group);
        return;
    }
    if (is_copy(agent, signal))
        return;
    if (agent->state == AGENT_ENDED) { /* only the disk is waited for */
        agent->interrupts += signal == SIGINT;
        if (agent->interrupts > 1)
            hold_cancel(agent->hold, "interrupted");
        return;
    }
    emit_signal(signal, sender);
    if (agent->options->on_signal)
        agent->options->on_signal(agent->options->context, signal, sender,
                                  agent_is_ending_signal(agent, signal),
                                  agent->interrupts + (signal == SIGINT));
    if (agent_is_ending_signal(agent, signal))
        agent_end_by_signal(agent, signal, sender);
    else
        agent_pass_on(agent, signal);
}

int agent_open_signals(struct agent *agent, struct ctrun_error *err)
{
    int list[NSIG];
    size_t count = 0;
    int rc;

    for (size_t i = 0; i < agent->options->signal_count && count < NSIG - 3; i++)
        list[count++] = agent->options->signals[i];
    list[count++] = SIGUSR1; /* unless it is listed: then it is only passed on */
    list[count++] = SIGUSR2;
    if (agent->options->workers.uses_pty)
        list[count++] = SIGWINCH; /* the guard forwards it */
    rc = signals_open(&agent->signals, agent->loop, list, count, on_signal, agent);
    return rc < 0 ? ct_fail(err, rc, "signals: %s", strerror(-rc)) : 0;
}

/* ---- ctrunctl --------------------------------------------------------------------------- */

/* All of these are called on the agent's loop and answer at once or by a ticket: none may block. */
static int on_ctl_status(void *context, struct ct_buf *out, struct ctrun_error *err)
{
    struct agent *agent = context;
    struct ct_addr local, server;
    char rendezvous[CT_ADDR_TEXT_MAX] = "";
    const struct report report = {
        .options = agent->options,
        .state = agent->drained_by != 0 && agent->state == AGENT_RUNNING ? "draining"
                 : agent->state == AGENT_JOINING && agent->waiting.is_spare
                     ? "spare"
                     : agent_state_name(agent),
        .start = &agent->start,
        .waiting = &agent->waiting,
        .group = agent->group,
        .ha_plan = &agent->ha_plan,
        .straggler = agent_straggler(agent),
        .slow_node = agent_slow_node(agent),
        .absent = agent_absent(agent),
        .reload = agent->reload.number > 0 ? &agent->reload : NULL,
        .reload_waits = agent->reload_waits,
        .is_linked = link_is_up(agent->link),
        .born_ms = agent->born_ms,
        .min_nodes = agent->min_nodes,
        .max_nodes = agent->max_nodes,
        .rendezvous = rendezvous,
    };
    int rc;

    if (link_get_ends(agent->link, &local, &server))
        ct_addr_format(rendezvous, &server);
    agent_refresh_steps(agent);
    rc = report_format(out, &report);

    return rc < 0 ? ct_fail(err, rc, "status: %s", strerror(-rc)) : 0;
}

static int on_ctl_why(void *context, struct ct_buf *out, struct ctrun_error *err)
{
    const struct agent *agent = context;
    char text[WHY_MAX_BYTES] = "";
    int rc;

    if (agent->options->why)
        agent->options->why(agent->options->context, text, sizeof text);
    if ((rc = ct_buf_printf(out, "{\"generation\":%llu,\"why\":",
                            (unsigned long long)agent->start.generation)) == 0 &&
        (rc = ct_json_append_str(out, text)) == 0)
        rc = ct_buf_append(out, "}", 1);
    return rc < 0 ? ct_fail(err, rc, "why: %s", strerror(-rc)) : 0;
}

/* USR1 ends a Python program that has no handler: a user who asks for stacks does not want that. */
static int refuse_fatal(const struct agent *agent, int signal, int rank,
                        struct ctrun_error *err)
{
    char list[WORKER_GROUP_VICTIMS_MAX_BYTES];
    char name[CT_SIGNAL_NAME_MAX];

    return worker_group_list_victims(agent->group, rank, signal, list) == 0
               ? 0
               : ct_fail(
                     err, CTRUN_E_USAGE,
                     "%s was not sent: it would end %s, because there is no handler "
                     "for it; --force sends it",
                     ct_signal_format(name, signal), list);
}

static int fail_signal(const struct agent *agent, int rank, int rc,
                       struct ctrun_error *err)
{
    const int64_t first = agent->start.rank_base;
    const int64_t last = first + agent->options->join.slots - 1;

    if ((rank < first || rank > last) && first == last)
        return ct_fail(err, rc, "rank %d does not run on this node, which has rank %d",
                       rank, (int)first);
    if (rank < first || rank > last)
        return ct_fail(err, rc,
                       "rank %d does not run on this node, which has ranks %d-%d", rank,
                       (int)first, (int)last);
    return ct_fail(err, rc, "rank %d got no signal: %s", rank,
                   rc == -ESRCH ? "it is not running" : strerror(-rc));
}

static int on_ctl_signal(void *context, int signal, int rank, bool is_forced,
                         pid_t sender, struct ct_buf *out, struct ctrun_error *err)
{
    struct agent *agent = context;
    int rc = 0;

    if (signal < 1 || signal >= NSIG)
        return ct_fail(err, -EINVAL, "signal %d does not exist", signal);
    if (agent->state != AGENT_RUNNING && worker_group_running_count(agent->group) == 0)
        return ct_fail(err, -ESRCH,
                       "no worker is running: the state of this node is %s",
                       agent_state_name(agent));
    if (!is_forced && (rc = refuse_fatal(agent, signal, rank, err)) < 0)
        return rc;
    if (rank >= 0 && (rc = worker_group_signal_rank(agent->group, rank, signal)) < 0)
        return fail_signal(agent, rank, rc, err);
    agent_emit_request("signal", signal, rank, "", sender);
    if (rank < 0)
        agent_pass_on(agent, signal); /* as if the signal had been sent to us */
    return ct_buf_printf(out, "{\"signalled\":true}");
}

static void on_ctl_stop(void *context, const char *reason, pid_t sender)
{
    agent_drain(context, reason, sender);
}

static int on_ctl_restart(void *context, const char *reason, uint32_t ticket,
                          pid_t sender, struct ctrun_error *err)
{
    agent_emit_request("restart", 0, -1, reason, sender);
    return agent_ask_restart(context, reason, ticket, err);
}

static int on_ctl_reload(void *context, const char *command, uint32_t ticket,
                         pid_t sender, struct ctrun_error *err)
{
    agent_emit_request("reload", 0, -1, "", sender);
    return agent_ask_reload(context, command, ticket, err);
}

static int on_ctl_chaos(void *context, const struct ct_fault *fault, const char *text,
                        uint32_t ticket, pid_t sender, struct ctrun_error *err)
{
    agent_emit_request("chaos", fault->signal, fault->target, "", sender);
    return agent_ask_chaos(context, fault, text, ticket, err);
}

/* The workers do not need this socket: failing to open it is only a warning. */
void agent_open_ctl_socket(struct agent *agent)
{
    const struct ctl_socket_options options = {
        .loop = agent->loop,
        .run_id = agent->options->hello.run_id,
        .context = agent,
        .on_status = on_ctl_status,
        .on_why = on_ctl_why,
        .on_signal = on_ctl_signal,
        .on_stacks = agent_show_stacks,
        .on_resize = agent_ask_resize,
        .on_drain = agent_ask_drain,
        .on_restart = on_ctl_restart,
        .on_reload = on_ctl_reload,
        .on_chaos = on_ctl_chaos,
        .on_stop = on_ctl_stop,
    };
    struct ctrun_error err;

    if (ctl_socket_open(&agent->ctl_socket, &options, &err) < 0)
        ct_warn("ctrunctl cannot reach this run: %s", err.text);
}
