/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from failures: from genuine ones, and from those that are consequences of a loss. */
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"

/* A member's workers may use all of their grace time, and its agent takes a moment more: only after
 * both the member is given up. */
void round_wait_for_grace(struct round *round, uint64_t grace_ms)
{
    const uint64_t patience_ms = ct_deadline_after(round->settings.join_timeout_ms,
                                                   grace_ms);
    const uint64_t deadline_ms = ct_deadline_after(round->stopping_ms, patience_ms);

    if (round->state == ROUND_STOPPING && deadline_ms > round->join_deadline_ms)
        round->join_deadline_ms = deadline_ms;
}

/* A genuine failure costs a restart, or ends the run if none is left. */
static void charge(struct round *round, const struct ct_failure *failure)
{
    const bool is_loop = crash_loop_take(&round->crash_loop, failure) &&
                         round->settings.max_restarts > CRASH_LOOP_FEW_RESTARTS;
    const bool is_broken = round_exclude_broken(round, failure);

    if (!ct_failure_is_victim(failure))
        poison_on_root(&round->poison, failure);
    if (round->outcome)
        return; /* the run ends anyhow */
    if (crash_loop_is_hopeless(failure) ||
        round->restart_count >= round->settings.max_restarts)
        round_decide(round, CT_OUTCOME_FAILED, failures_exit_code(failure));
    else if (is_broken || round_exclude(round, failure))
        round->restart_count++; /* before the loop: the next try is elsewhere */
    else if (is_loop)
        round_decide(round, CT_OUTCOME_CRASH_LOOP, failures_exit_code(failure));
    else
        round->restart_count++;
}

void round_on_answer(struct round *round, struct member *member)
{
    const struct ct_failure *root = failures_get_root(&round->failures);

    round_set_asked(round, member, false);
    if (!round->is_undecided || round->asked_count > 0)
        return;
    if (root->cause == CT_CAUSE_NODE_LOST) { /* the reported failure follows from it */
        round_send_decision(round, CT_STOP_NODE_LOST, root);
        return;
    }
    charge(round, root);
    round_send_decision(round, CT_STOP_FAILURE, root);
}

void round_give_up_surviving(struct round *round, uint64_t now_ms)
{
    const struct ct_failure loss = round->lost_node;

    round->survive_due_ms = 0;
    failures_add_root(&round->failures, &loss);
    round_stop_world(round, CT_STOP_NODE_LOST, &loss, now_ms);
}

static bool has_others(const struct round *round, const struct member *reporter)
{
    size_t running = round->counts[MEMBER_RUNNING] + round->counts[MEMBER_SUCCEEDED];

    return running >
           (reporter->state == MEMBER_RUNNING || reporter->state == MEMBER_SUCCEEDED);
}

void round_add_failure(struct round *round, const struct ct_failure *failure,
                       uint64_t now_ms)
{
    const struct failures_arrival arrival = {
        .at_ms = now_ms - (round->waited_ms < now_ms ? round->waited_ms : now_ms),
        .rtt_ms = round->rtt_ms,
        .is_end = round->is_end,
        .is_decided = round->state != ROUND_RUNNING && !round->is_undecided,
    };

    failures_add_reported(&round->failures, failure, &arrival);
}

/* A worker failed. Only the first failure of a round stops the world. One that cannot be killed ends
 * the run, whatever the first failure is: the next world would not be alone. The first failure gives
 * the exit status; the node of the worker says 76. */
void round_fail(struct round *round, struct member *reporter,
                const struct ct_failure *failure, uint64_t now_ms)
{
    const struct ct_failure *root = failures_get_root(&round->failures);
    const bool is_unkillable = failure->cause == CT_CAUSE_UNKILLABLE;

    if (is_unkillable && !round->outcome &&
        (round->state == ROUND_RUNNING || round->state == ROUND_STOPPING))
        round_decide(round, CT_OUTCOME_FAILED, failures_exit_code(root));
    if (round->state == ROUND_RUNNING && round->survive_due_ms > 0 && !is_unkillable) {
        round_give_up_surviving(round,
                                now_ms); /* the failure is a consequence of the loss */
        return;
    }
    if (round->state != ROUND_RUNNING)
        return;
    if (!is_unkillable && has_others(round, reporter)) {
        round_stop_world(round, CT_STOP_UNDECIDED, failure, now_ms);
        round_on_answer(round, reporter); /* the report shows that it is alive */
        return;
    }
    charge(round, root);
    round_stop_world(round, CT_STOP_FAILURE, root, now_ms);
}

/* Drops members that send heartbeats but never report the end of their workers: they must not block
 * the run. */
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
