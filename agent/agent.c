/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes what the agent is made of, and runs its loop. */
#include "agent/agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/agent_private.h"
#include "agent/allocation.h"
#include "worker_sdk/wire/contract.h"

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

static int open_all(struct agent *agent, struct ctrun_error *err)
{
    int rc;

    if ((rc = open_consoles(agent, err)) < 0 ||
        (rc = agent_open_chorus(agent, err)) < 0 ||
        (rc = agent_open_control(agent, err)) < 0 ||
        (rc = agent_open_crew(agent, err)) < 0 ||
        (rc = agent_open_watchdog(agent, err)) < 0 ||
        (rc = agent_open_stuck(agent, err)) < 0 ||
        (rc = agent_open_hang(agent, err)) < 0 ||
        (rc = agent_open_way(agent, err)) < 0 || (rc = agent_open_link(agent, err)) < 0)
        return rc;
    if ((rc = agent_open_countdown(agent, err)) < 0 ||
        (rc = agent_open_heirs(agent, err)) < 0 ||
        (rc = agent_open_allocation(agent, err)) < 0)
        return rc;
    if (!(agent->drain_timer = loop_timer_open(agent->loop, agent_drained, agent)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    agent_open_remote(agent);
    /* Last: from here on they find everything there. */
    return agent_open_signals(agent, err);
}

static void close_all(struct agent *agent)
{
    remote_close(agent->remote); /* first: nobody finds us while we end */
    allocation_close(agent->allocation);
    loop_timer_close(agent->drain_timer);
    way_close(agent->way);
    loop_timer_close(agent->countdown);
    link_close(agent->link, AGENT_HURRY_MS);
    agent_close_heirs(agent);
    agent_close_store(agent);
    watchdog_close(agent->watchdog);
    stuck_destroy(agent->stuck);
    agent_close_hang(agent);
    control_close(agent->control);
    crew_destroy(agent->crew);
    signals_close(agent->signals);
    agent_flush_chorus(agent, true);
    if (agent->console_out)
        console_flush(agent->console_out, OUTPUT_FLUSH_MS);
    if (agent->console_err)
        console_flush(agent->console_err, OUTPUT_FLUSH_MS);
    agent_close_chorus(agent);
    agent->result->is_mid_line = agent->console_err &&
                                 console_is_mid_line(agent->console_err);
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
