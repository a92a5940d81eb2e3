/* SPDX-License-Identifier: Apache-2.0 */
/* --survive=torch: ranks whose process groups were not made by the SDK stay in a collective for
 * ever when a rank is lost, or has left the collective to ask who continues. The agent shuts down
 * the connections between such ranks, so that each of them gets an error and asks, too. Ranks that
 * use the SDK are told of a loss, but not while they wait for a worker store that is gone: then the
 * agent cuts their connections as well, until the next store is known.
 *
 *     idle ──a loss: cut──────────────────────> again and again ──all that run have asked──> idle
 *      └────one asks, a moment passes: cut──────────^
 *
 * One cut is not enough: just after a cut a rank may connect to a rank that has left.
 *
 * With several nodes all ranks that have not asked may be on other nodes: this agent repeats the
 * cut until the server has decided. Only connections of the previous world are cut: ranks connect
 * for the next world after this agent has received the decision. */
#include <errno.h>

#include "agent/node/agent_private.h"

/* Repeats after twice the time: a rank may connect just after a cut. */
static void cut(struct agent *agent)
{
    struct worker_group_loss loss = {0};

    agent_fill_job(agent, &loss.job);
    worker_group_cut(agent->group, &loss);
    agent->survival.cut_ms = agent->survival.cut_ms * 2 < AGENT_CUT_MAX_MS
                                 ? agent->survival.cut_ms * 2
                                 : AGENT_CUT_MAX_MS;
    loop_timer_set(agent->survival.cut_timer, agent->survival.cut_ms);
}

static bool is_wanted(const struct agent *agent)
{
    return agent->options->frees_peers || agent->survival.has_lost_store;
}

/* Some rank has not asked, and may not know of the loss. */
static bool is_awaited(const struct agent *agent)
{
    char late[WORKER_GROUP_VICTIMS_MAX_BYTES];
    const bool is_shared = agent_shares_world(agent);

    (void)worker_group_list_late(agent->group, late);
    return agent->state == AGENT_RUNNING && (*late || is_shared) &&
           (worker_group_find_loss(agent->group) ||
            worker_group_has_asked(agent->group) ||
            (is_shared && agent->survival.losses > agent->survival.decided));
}

static void on_time(void *context)
{
    struct agent *agent = context;

    if (is_awaited(agent))
        cut(agent);
    else
        agent_stop_cutting(agent);
}

/* A rank that asks because a new worker waits has peers that will ask soon: so the first cut waits
 * AGENT_CUT_MS. */
void agent_cut_soon(struct agent *agent)
{
    if (!is_wanted(agent) || agent->survival.cut_ms || !is_awaited(agent))
        return;
    agent->survival.cut_ms = AGENT_CUT_MS;
    loop_timer_set(agent->survival.cut_timer, AGENT_CUT_MS);
}

void agent_cut_now(struct agent *agent)
{
    if (!is_wanted(agent))
        return;
    agent->survival.cut_ms = AGENT_CUT_MS;
    cut(agent);
}

void agent_stop_cutting(struct agent *agent)
{
    agent->survival.cut_ms = 0;
    if (agent->survival.cut_timer)
        loop_timer_stop(agent->survival.cut_timer);
}

int agent_open_cutting(struct agent *agent)
{
    agent->survival.cut_timer = loop_timer_open(agent->loop, on_time, agent);
    return agent->survival.cut_timer ? 0 : -ENOMEM;
}
