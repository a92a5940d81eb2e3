/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that has ended with 0 while others of this node still run, a while ago: they may wait for
 * it. Reported once a round. */
#include "agent/node/agent_private.h"
#include "agent/worker/worker.h"

/* The first worker that has ended with 0; NULL: none has, or none runs any more. */
static const struct worker *find_first(const struct agent *agent, int *running)
{
    const struct worker *first = NULL;

    *running = 0;
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        *running += worker->state == WORKER_RUNNING;
        if (worker->state == WORKER_ENDED && worker->failure.cause == CT_CAUSE_NONE &&
            (!first || worker->failure.happened_ms < first->failure.happened_ms))
            first = worker;
    }
    return *running > 0 ? first : NULL;
}

void agent_look_early(void *context)
{
    struct agent *agent = context;
    const uint64_t limit_ms = agent->options->early_ms;
    const struct worker *first;
    uint64_t ago_ms;
    int running;

    if (limit_ms == 0 || agent->state != AGENT_RUNNING || agent->drained_by != 0 ||
        agent->early_generation == agent->start.generation ||
        !(first = find_first(agent, &running)))
        return;
    ago_ms = ct_now_ms() - first->failure.happened_ms;
    if (ago_ms < limit_ms) {
        loop_timer_set(agent->early_timer, limit_ms - ago_ms);
        return;
    }
    agent->early_generation = agent->start.generation;
    agent->options->on_early(agent->options->context, first->rank, ago_ms, running);
}
