/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes the parts of the agent, and runs its loop. */
#include "agent/agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/loop/signals.h"
#include "agent/node/agent_private.h"
#include "agent/watch/allocation.h"
#include "worker_sdk/wire/contract.h"

/* Opens one console for both streams when they are the same terminal or file, because it must know whether a line there
 * is unfinished. close_all() closes it once. */
static int open_consoles(struct agent *agent, struct ctrun_error *err)
{
    agent->console_err = console_open(agent->loop, STDERR_FILENO);
    agent->console_out = console_is_shared() ? agent->console_err
                                             : console_open(agent->loop, STDOUT_FILENO);
    return agent->console_err && agent->console_out
               ? 0
               : ct_fail(err, -ENOMEM, "console: out of memory");
}

/* Each part needs those above it: the worker group needs the consoles, the name of the worker socket and the recorder's
 * folder; the link needs all that a message may use. No callback runs before loop_run(), so none finds a half-open
 * agent. After a failure close_all() closes what is open. */
static int open_all(struct agent *agent, struct ctrun_error *err)
{
    int rc;

    if ((rc = open_consoles(agent, err)) < 0 ||
        (rc = agent_open_dedup(agent, err)) < 0 ||
        (rc = agent_open_hold(agent, err)) < 0 ||
        (rc = agent_open_worker_socket(agent, err)) < 0 ||
        (rc = agent_open_hang(agent, err)) < 0 ||
        (rc = agent_open_worker_group(agent, err)) < 0 ||
        (rc = agent_open_file_timer(agent, err)) < 0 ||
        (rc = agent_open_dstate_watch(agent, err)) < 0 ||
        (rc = agent_open_survival(agent, err)) < 0 ||
        (rc = agent_open_own(agent, err)) < 0 ||
        (rc = agent_open_absent(agent, err)) < 0 ||
        (rc = agent_open_bill(agent, err)) < 0 ||
        (rc = agent_open_recovery(agent, err)) < 0 ||
        (rc = agent_open_chaos(agent, err)) < 0 ||
        (rc = agent_open_delay(agent, err)) < 0 ||
        (rc = agent_open_reachability(agent, err)) < 0 ||
        (rc = agent_open_link(agent, err)) < 0)
        return rc;
    if ((rc = agent_open_countdown(agent, err)) < 0 ||
        (rc = agent_open_allocation(agent, err)) < 0 ||
        (rc = agent_open_ha(agent, err)) < 0)
        return rc;
    if (!(agent->drain_timer = loop_timer_open(agent->loop, agent_drained, agent)) ||
        !(agent->early_timer = loop_timer_open(agent->loop, agent_look_early, agent)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    agent_open_ctl_socket(agent);
    /* Last: a signal finds everything above open. */
    return agent_open_signals(agent, err);
}

/* Accepts a half-made agent. The sockets for requests close first; the consoles close last, since
 * every stream and message above may still write to them. */
static void close_all(struct agent *agent)
{
    uint64_t flush_ms;

    ctl_socket_close(agent->ctl_socket); /* first: no request arrives while we end */
    allocation_close(agent->allocation);
    loop_timer_close(agent->drain_timer);
    loop_timer_close(agent->early_timer);
    agent_close_reachability(agent);
    loop_timer_close(agent->countdown);
    agent_close_ha(agent);
    /* Our last message, STOPPED or LEAVE, may still be queued: without it the server waits for our lease to end. */
    link_close(agent->link, AGENT_HURRY_MS);
    agent_close_store(agent);
    file_timer_close(agent->file_timer);
    dstate_watch_destroy(agent->dstate_watch);
    agent_close_stacks(agent);
    agent_close_hang(agent);
    agent_close_own(agent);
    agent_close_recovery(agent);
    agent_close_absent(agent);
    agent_close_bill(agent);
    loop_timer_close(agent->chaos.timer);
    loop_timer_close(agent->delay_timer);
    agent_close_gpu(agent);
    worker_socket_close(agent->worker_socket);
    loop_timer_close(agent->step_timer);
    loop_timer_close(agent->metrics_timer);
    loop_timer_close(agent->survival.timer);
    loop_timer_close(agent->survival.cut_timer);
    /* The server counts this node as gone. The loop runs again until the checkpoints are on the
     * disk or Ctrl-C gives them up: the signals are still open for that, and agent_hold.c stops the
     * loop. */
    if (hold_is_busy(agent->hold)) {
        if (agent->options->on_saving)
            agent->options->on_saving(agent->options->context,
                                      hold_left_ms(agent->hold));
        loop_run(agent->loop);
    }
    agent_check_hold(agent);
    hold_destroy(agent->hold);
    worker_group_destroy(agent->group);
    signals_close(agent->signals);
    /* First the lines that wait for duplicates go to the consoles, then the consoles' lines to the terminal, which may
     * be slow. */
    agent_flush_dedup(agent, true);
    flush_ms = agent->interrupts > 1 ? OUTPUT_HURRY_MS : OUTPUT_FLUSH_MS;
    if (agent->console_out)
        console_flush(agent->console_out, flush_ms);
    if (agent->console_err)
        console_flush(agent->console_err, flush_ms);
    if (agent->console_out && agent->result->verdict.outcome != CT_OUTCOME_SUCCEEDED)
        console_check(agent->console_out); /* its reader may have gone unnoticed */
    agent_close_dedup(agent);
    if (agent->console_out != agent->console_err)
        console_close(agent->console_out);
    console_close(agent->console_err);
}

/* Fills what no verdict of the server says: how this node's workers ended when the agent left by
 * itself. */
static void fill_verdict(struct agent *agent)
{
    struct ct_verdict *verdict = &agent->result->verdict;

    if (verdict->outcome != 0 || !agent->group)
        return;
    verdict->generation = agent->start.generation;
    verdict->outcome = CT_OUTCOME_CLOSED;
    verdict->restart_count = agent->start.restart_count;
    verdict->exit_code = (uint8_t)(agent->result->signal
                                       ? CT_EXIT_SIGNAL + agent->result->signal
                                       : CT_EXIT_RETRY);
    verdict->failure_count = (uint8_t)worker_group_get_failures(
        agent->group, verdict->failures, CT_FAILURES_MAX, &verdict->more);
    for (int i = 0; i < verdict->failure_count; i++)
        if (verdict->failures[i].cause != CT_CAUSE_STOPPED)
            agent_add_calls(agent, &verdict->failures[i]);
}

static int check(const struct agent_options *options, struct ctrun_error *err)
{
    if (options->join.slots < 1 || options->join.slots > AGENT_WORKERS_MAX)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%u workers on one node: the number must be from 1 to %d",
                       options->join.slots, AGENT_WORKERS_MAX);
    if (options->signal_count > NSIG - 3)
        return ct_fail(err, CTRUN_E_USAGE, "%zu signals to handle are too many",
                       options->signal_count);
    return 0;
}

int agent_run(const struct agent_options *options, struct agent_result *result,
              struct ctrun_error *err)
{
    static struct agent memory; /* large, mostly not touched; one per process */
    struct agent *agent = &memory;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    int rc;

    if ((rc = check(options, err)) < 0)
        return rc;
    agent->options = options;
    agent->result = result;
    agent->min_nodes = options->hello.min_nodes;
    agent->max_nodes = options->hello.max_nodes;
    agent->born_ms = ct_now_ms();
    if ((rc = loop_create(&agent->loop)) < 0)
        return ct_fail(err, rc, "loop: %s", strerror(-rc));
    signals_hold();
    /* Processes that a dead worker leaves become our children, not init's, so that we find and kill them. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Writing to a console that is gone must not kill us. */
    (void)sigaction(SIGPIPE, &ignore, &before);
    rc = open_all(agent, err);
    if (rc == 0) {
        link_connect(agent->link, options->connect_timeout_ms);
        loop_run(agent->loop);
        fill_verdict(agent);
    }
    close_all(agent);
    /* the loop stays allocated then: an unclosed handle still points into it */
    if (loop_destroy(agent->loop) < 0)
        ct_err(
            "agent: mistake in ctrun: a handle was not closed before the event loop");
    (void)sigaction(SIGPIPE, &before, NULL);
    return rc;
}
