/* SPDX-License-Identifier: Apache-2.0 */
/* What every failure of a stuck worker has. */
#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"
#include "agent/worker/worker.h"

void agent_begin_hang(struct ct_failure *out, const struct agent *agent,
                      const struct worker *worker)
{
    *out = (struct ct_failure){
        .generation = agent->start.generation,
        .cause = CT_CAUSE_HANG,
        .rank = worker->rank,
        .local_rank = worker->local_id,
        .node_rank = (int32_t)agent->start.group_rank,
        .pid = worker->pid,
        .restart_count = agent->start.restart_count,
        .wall_ns = ct_wall_ns(),
        .uptime_ms = ct_now_ms() - worker->started_ms,
        .step = -1,
    };
    (void)ct_copy(out->host, sizeof out->host, agent->options->hello.host);
    worker_add_role(out, worker, &agent->options->join, &agent->start);
    (void)worker_add_chaos(out, worker);
}

/* The server, which knows of all ranks, says what can be done if the rank only waits as the others do
 * (rendezvous/report/hang_views.c). */
void agent_add_pause(struct ct_failure *out, const struct agent *agent, bool only_waits)
{
    if (!only_waits)
        facts_add(out, CT_FACT_DO,
                  "look at that stack; --hang-timeout %llu if this pause is normal",
                  (unsigned long long)(agent->options->hang_timeout_ms / 1000 * 3));
}
