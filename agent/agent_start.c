/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the workers of a round and their watchers.
 *
 * The order matters. The fence is armed before the first worker runs: if this process is stopped in between, the guard
 * ends the workers. Before there are any, the watchers forget the previous round and the worker socket admits the new
 * processes. The workers start last: a failure to start is reported within that call and may already stop the round. */
#include "agent/node/agent_private.h"

void agent_start_workers(struct agent *agent)
{
    const struct ct_start *start = &agent->start;

    agent_emit_round(agent, "round_started");
    if (agent->options->on_start)
        agent->options->on_start(agent->options->context, start);
    if (!agent->options->serves_rendezvous && agent->lost_after_ms > 0)
        fence_arm(link_deadline_ms(agent->link),
                  agent->options->find_servers ? 0 : agent->lost_after_ms / 5 * 2);
    file_timer_clear(agent->file_timer);
    dstate_watch_start(agent->dstate_watch);
    agent_start_hang(agent);
    agent_start_own(agent);
    agent_start_absent(agent);
    worker_socket_begin_round(agent->worker_socket, (int)agent->options->join.slots);
    agent->round_ms = ct_now_ms();
    agent_begin_survival(agent);
    worker_group_start(agent->group, start);
}
