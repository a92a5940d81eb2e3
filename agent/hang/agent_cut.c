/* SPDX-License-Identifier: Apache-2.0 */
/* --survive=torch: ranks whose groups are not the SDK's sit in a collective that never ends when one of them is
 * lost, or has left to ask who continues. Their connections to each other are shut down, so that they have an error
 * there and ask, too. With the SDK they hear of a loss by themselves, but not where they wait for a worker store that
 * is gone: until it is decided where the next one is, it is done there, too.
 *
 *     idle ──a loss: cut──────────────────────> again and again ──all that run have asked──> idle
 *      └────one asks, a moment passes: cut──────────^
 *
 * Once is not enough: a rank may connect to one that has left, just behind a cut.
 *
 * Over several nodes those that are waited for may all be elsewhere, and not know: it continues until the server has
 * decided. What is cut is of the world before: who meets in the next one hears of it after this agent has. */
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

/* Somebody is waited for, and may not know. */
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

/* Who has left by itself, because it was told that a new one waits, has mates that leave now. */
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
