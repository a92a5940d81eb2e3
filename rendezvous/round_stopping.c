/* SPDX-License-Identifier: Apache-2.0 */
/* STOPPING and CLOSED: how a world ends, and how a run does. */
#include "rendezvous/round_private.h"

void round_decide(struct round *round, enum ct_outcome outcome, uint8_t exit_code)
{
    round->outcome = (uint8_t)outcome;
    round->exit_code = exit_code;
}

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
    if (round->outcome != CT_OUTCOME_SUCCEEDED)
        verdict->failure_count = failures_copy(&round->failures, verdict->failures,
                                               CT_FAILURES_MAX);
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state != MEMBER_LEAVING && member->state != MEMBER_LEFT)
            round_push_to(round, ROUND_SEND_VERDICT, member);
    }
}

void round_stop_world(struct round *round, enum ct_stop_reason reason,
                      const struct ct_failure *cause, uint64_t now_ms)
{
    round_change_state(round, ROUND_STOPPING,
                       cause ? ct_cause_name(cause->cause) : "membership");
    round->join_deadline_ms = round_deadline(now_ms, round->settings.join_timeout_ms);
    round->stop = (struct ct_stop){
        .generation = round->generation,
        .reason = (uint8_t)reason,
        .is_final = round->outcome != 0,
        .restart_count = round->restart_count,
        .max_restarts = round->settings.max_restarts,
    };
    if (cause)
        round->stop.cause = *cause;
    for (size_t i = 0; i < round->members.count; i++) {
        struct member *member = round->members.list[i];

        if (member->state != MEMBER_RUNNING && member->state != MEMBER_SUCCEEDED)
            continue;
        round_change_member(round, member, MEMBER_STOPPING);
        round_push_to(round, ROUND_SEND_STOP, member);
    }
    round_finish_stopping(round, now_ms);
}

/* The next state, once no worker of this world can be alive any more. */
void round_finish_stopping(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_STOPPING || round->counts[MEMBER_STOPPING] > 0 ||
        round->counts[MEMBER_LEAVING] > 0)
        return;
    if (round->outcome)
        round_close(round, "all have stopped");
    else
        round_begin_forming(round, now_ms);
}

/* A worker failed on its own account. Only the first one of a round decides anything. */
void round_fail(struct round *round, const struct ct_failure *failure, uint64_t now_ms)
{
    bool is_unkillable = failure->cause == CT_CAUSE_UNKILLABLE;

    failures_add(&round->failures, failure);
    if (round->state == ROUND_STOPPING && is_unkillable && !round->outcome)
        round_decide(round, CT_OUTCOME_FAILED, failures_exit_code(failure));
    if (round->state != ROUND_RUNNING)
        return;
    if (!is_unkillable && round->restart_count < round->settings.max_restarts)
        round->restart_count++;
    else
        round_decide(round, CT_OUTCOME_FAILED, failures_exit_code(failure));
    round_stop_world(round, CT_STOP_FAILURE, failure, now_ms);
}

/* Members that beat but never say that their workers are gone must not hold the run. */
void round_give_up_stopping(struct round *round, uint64_t now_ms)
{
    size_t i = round->members.count;

    while (i-- > 0 && round->state == ROUND_STOPPING) {
        struct member *member = round->members.list[i];

        if (!member_is_in_world(member))
            continue;
        round_push_to(round, ROUND_DROP, member);
        round_lose(round, member, "its workers did not end in time", now_ms);
    }
}
