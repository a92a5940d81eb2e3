/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the allocation is near: the workers save while there is time. Each node goes by its
 * own allocation and its own clock, since a run may have nodes of several jobs. */
#include <signal.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/watch/allocation.h"

static void emit_end(const struct agent_ending *ending)
{
    ct_event_emit("allocation_ends", CT_INT("left_ms", ending->left_ms),
                  CT_INT("grace_ms", ending->grace_ms),
                  CT_INT("signal", ending->signal),
                  CT_INT("is_ending", ending->is_ending));
}

/* All time that is left, unless the options give the workers less. */
static uint64_t grace_ms(const struct agent *agent, uint64_t left_ms)
{
    const uint64_t most_ms = allocation_grace_ms(left_ms);

    return agent->options->end_grace_ms < most_ms ? agent->options->end_grace_ms
                                                  : most_ms;
}

/* A signal that is only passed on needs a worker that receives it, on this node or, once ours have
 * succeeded, on other nodes. Otherwise this node ends: the time does not suffice for anything new. */
static bool is_ending(const struct agent *agent, int signal)
{
    return signal == SIGTERM || agent_is_ending_signal(agent, signal) ||
           (agent->state != AGENT_RUNNING && agent->state != AGENT_SUCCEEDED);
}

/* Called once, shortly before the end of the allocation, which kills what still runs: the workers have until then to
 * save. */
static void on_near(void *context)
{
    struct agent *agent = context;
    const struct agent_options *options = agent->options;
    struct agent_ending ending = {.signal = options->end_signal};
    char why[96];

    if (agent->state == AGENT_ENDED)
        return;
    ending.left_ms = allocation_left_ms(options->end_s, ct_wall_ns());
    ending.is_ending = is_ending(agent, ending.signal);
    if (ending.is_ending) {
        ending.grace_ms = grace_ms(agent, ending.left_ms);
        ending.has_workers = agent->state == AGENT_RUNNING ||
                             (agent->state == AGENT_STOPPING && !agent->is_gone);
    }
    agent->result->allocation_ends = true;
    emit_end(&ending);
    if (options->on_allocation_end)
        options->on_allocation_end(options->context, &ending);
    if (!ending.is_ending) {
        agent_pass_on(agent, ending.signal);
        return;
    }
    (void)ct_format(why, sizeof why, "its allocation ends in %llu s",
                    (unsigned long long)((ending.left_ms + 500) / 1000));
    agent_end_in_time(agent, ending.signal, ending.grace_ms, why);
}

int agent_open_allocation(struct agent *agent, struct ctrun_error *err)
{
    const struct agent_options *options = agent->options;
    int rc;

    if (options->end_s == 0 || options->stop_before_end_s == 0)
        return 0;
    rc = allocation_open(&agent->allocation, agent->loop,
                         options->end_s - (int64_t)options->stop_before_end_s, on_near,
                         agent);
    return rc < 0 ? ct_fail(err, rc, "timer of the allocation's end: %s", strerror(-rc))
                  : 0;
}
