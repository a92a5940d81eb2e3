/* SPDX-License-Identifier: Apache-2.0 */
/* This node joins the next round, and waits for START. */
#include "agent/node/agent_private.h"

void agent_send_join(struct agent *agent)
{
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_JOIN, .join = &agent->join});
}

void agent_join(struct agent *agent)
{
    const struct agent_options *options = agent->options;
    struct ctrun_error err;

    /* A rank of the next world would load an older checkpoint than the one that is being written. */
    agent->joins_later = hold_is_busy(agent->hold); /* agent_hold.c joins then */
    if (agent->joins_later)
        return;
    hold_forget_lost(agent->hold);
    if (agent->drained_by != 0) { /* the round was stopped while the workers saved */
        agent_drained(agent);
        return;
    }
    agent->join = options->join;
    if (agent->reload.number > 0 && agent->join.program)
        agent->join.program = agent->reload.program;
    if (agent->reload.number > 0)
        agent->join.torch[0] = '\0'; /* its interpreter may be another one */
    /* Any node may become group rank 0, so each opens a store and sends its port. */
    agent_close_store(agent);
    if (options->open_store &&
        options->open_store(options->context, &agent->join.store_port, &agent->store,
                            &err) < 0) {
        agent_fail(agent, &err);
        return;
    }
    agent->has_store = options->open_store != NULL;
    agent->join_ms = ct_now_ms();
    agent_set_state(agent, AGENT_JOINING, "ready for a round");
    agent_send_join(agent);
}

void agent_on_waiting(struct agent *agent, const struct ct_waiting *waiting)
{
    agent->waiting = *waiting;
    if (agent->state == AGENT_JOINING && agent->options->on_waiting)
        agent->options->on_waiting(agent->options->context, waiting,
                                   ct_now_ms() - agent->join_ms);
}
