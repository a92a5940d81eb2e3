/* SPDX-License-Identifier: Apache-2.0 */
/* A new round because somebody asks for one: the members stay, nothing has failed, and no restart
 * of the budget is used. What is journalled is the world that stops, as for every other stop. */
#include "rendezvous/round_private.h"
#include "worker_sdk/base/str.h"

/* NULL: it can be restarted now. */
static const char *why_not(const struct round *round)
{
    if (round->state == ROUND_CLOSED || round->outcome)
        return "the run is ending";
    if (round->state == ROUND_FORMING)
        return "nothing runs yet: it waits for nodes, and a round starts when they are "
               "there";
    if (round->state == ROUND_STOPPING)
        return "its round is being stopped already, and a new one follows";
    if (round->is_finishing)
        return "the run is ending: the workers of a node have succeeded";
    return NULL;
}

void round_on_restart(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_restart *restart = &message->restart;
    const struct ct_failure asked = round_name_node(round, member, CT_CAUSE_NONE,
                                                    restart->reason);
    const char *refusal = why_not(round);

    round->restart = (struct ct_restart){.ticket = restart->ticket, .is_answer = true};
    if (refusal)
        (void)ct_copy(round->restart.refusal, sizeof round->restart.refusal, refusal);
    else
        round->restart.generation = round->generation;
    if (restart->ticket)
        round_push_to(round, ROUND_SEND_RESTART, member);
    if (!refusal)
        round_stop_world(round, CT_STOP_ASKED, &asked, now_ms);
}
