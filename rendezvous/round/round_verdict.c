/* SPDX-License-Identifier: Apache-2.0 */
/* The messages at the end of a world and of the run: STOP and VERDICT. */
#include "rendezvous/round/round_private.h"

void round_decide(struct round *round, enum ct_outcome outcome, uint8_t exit_code)
{
    round->outcome = (uint8_t)outcome;
    round->exit_code = exit_code;
}

/* The verdict is made once and kept: a member that resumes later gets the same one. A member that
 * leaves does not wait for it. */
void round_close(struct round *round, const char *why)
{
    struct ct_verdict *verdict = &round->verdict;

    round_change_state(round, ROUND_CLOSED, why);
    *verdict = (struct ct_verdict){
        .generation = round->generation,
        .outcome = round->outcome,
        .exit_code = round->exit_code,
        .restart_count = round->restart_count,
    };
    if (round->outcome != CT_OUTCOME_SUCCEEDED) {
        verdict->more = failures_count_more(&round->failures);
        verdict->failure_count = failures_copy(&round->failures, verdict->failures,
                                               CT_FAILURES_MAX);
    }
    if (verdict->failure_count > 0) {
        hang_views_add_facts(&round->hang_views, &verdict->failures[0]);
        poison_add_fact(&round->poison, &verdict->failures[0]);
    }
    member_for_each(member, &round->members) {
        if (member->state != MEMBER_LEAVING && member->state != MEMBER_LEFT)
            round_push_to(round, ROUND_SEND_VERDICT, member);
    }
}

/* STOP is kept in the round and in the journal: a member that resumes gets the STOP that it has
 * missed (round_resume.c). */
void round_fill_stop(struct round *round, enum ct_stop_reason reason,
                     const struct ct_failure *cause)
{
    round->stop = (struct ct_stop){
        .generation = round->generation,
        .reason = (uint8_t)reason,
        .is_final = round->outcome != 0,
        .restart_count = round->restart_count,
        .max_restarts = round->settings.max_restarts,
    };
    if (cause) {
        round->stop.cause = *cause;
        round_fill_excluded(round, &round->stop);
        poison_add_fact(&round->poison, &round->stop.cause);
    }
}

/* Sends the second STOP to all members that got the first one and are still here. Members in
 * CONNECTED and READY have stopped, or also joined again, before the cause was decided. */
void round_send_decision(struct round *round, enum ct_stop_reason reason,
                         const struct ct_failure *cause)
{
    round->is_undecided = false;
    round_fill_stop(round, reason, cause);
    member_for_each(member, &round->members) {
        round_set_asked(round, member, false);
        if (member->start.generation == round->generation &&
            (member->state == MEMBER_STOPPING || member->state == MEMBER_CONNECTED ||
             member->state == MEMBER_READY))
            round_push_to(round, ROUND_SEND_STOP, member);
    }
}

/* The failure that was reported first is a consequence of the loss, and costs no restart. */
void round_blame_loss(struct round *round, const struct ct_failure *loss)
{
    failures_add_root(&round->failures, loss);
    round_send_decision(round, CT_STOP_NODE_LOST, loss);
}
