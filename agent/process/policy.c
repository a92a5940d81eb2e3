/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/policy.h"

#include <signal.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/clock.h"

static uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* If only orphans are left, no worker can end them: they get AGENT_ORPHAN_MS at most, whatever
 * the grace time. */
void policy_begin(struct policy *policy, int signal, uint64_t grace_ms, uint64_t now_ms)
{
    if (policy->phase != POLICY_IDLE)
        return;
    *policy = (struct policy){
        .phase = POLICY_ASKED,
        .signal = signal,
        .ask_ms = now_ms,
        .orphan_deadline_ms = ct_deadline_after(now_ms,
                                                earlier_of(grace_ms, AGENT_ORPHAN_MS)),
        .grace_deadline_ms = ct_deadline_after(now_ms, grace_ms),
    };
}

void policy_postpone(struct policy *policy, uint64_t delay_ms)
{
    if (policy->phase != POLICY_ASKED || policy->is_signalled)
        return;
    policy->ask_ms = ct_deadline_after(policy->ask_ms, delay_ms);
    policy->grace_deadline_ms = ct_deadline_after(policy->grace_deadline_ms, delay_ms);
}

void policy_spare(struct policy *policy, uint64_t before_ms)
{
    policy->spared_ms = before_ms;
}

void policy_hurry(struct policy *policy, int signal, uint64_t grace_ms, uint64_t now_ms)
{
    if (policy->phase != POLICY_ASKED)
        return;
    policy->ask_ms = earlier_of(policy->ask_ms, now_ms);
    policy->grace_deadline_ms = earlier_of(policy->grace_deadline_ms,
                                           ct_deadline_after(now_ms, grace_ms));
    if (policy->signal == SIGTERM)
        return;
    /* Another signal must be sent even after the first one; but SIGTERM is not followed by a
     * weaker one. */
    policy->is_signalled &= policy->signal == signal;
    policy->signal = signal;
}

void policy_extend(struct policy *policy, uint64_t grace_ms, uint64_t now_ms)
{
    const uint64_t deadline_ms = ct_deadline_after(now_ms, grace_ms);

    if (policy->phase == POLICY_ASKED && policy->grace_deadline_ms < deadline_ms)
        policy->grace_deadline_ms = deadline_ms;
}

bool policy_wants_census(const struct policy *policy, uint64_t now_ms)
{
    return policy->phase == POLICY_ASKED && now_ms >= policy->orphan_deadline_ms;
}

/* Helpers whose worker, which should have ended them, is gone. */
static unsigned ask_helpers(struct policy *policy, const struct policy_census *census,
                            uint64_t now_ms, uint64_t *wake_ms)
{
    if (census->workers > 0 || !policy->signal)
        return 0;
    if (policy->helper_deadline_ms == 0)
        policy->helper_deadline_ms = ct_deadline_after(now_ms, AGENT_HELPER_MS);
    if (now_ms < policy->helper_deadline_ms) {
        *wake_ms = earlier_of(*wake_ms, policy->helper_deadline_ms);
        return 0;
    }
    *wake_ms = earlier_of(*wake_ms, ct_deadline_after(now_ms, AGENT_HELPER_RESCAN_MS));
    return POLICY_KILL_HELPERS;
}

/* After POLICY_SIGNAL. */
static unsigned ask_spared(struct policy *policy, uint64_t now_ms, uint64_t *wake_ms)
{
    uint64_t at_ms = 0;

    if (!policy->is_signalled || policy->spared_ms == 0)
        return 0;
    if (policy->spared_ms < policy->grace_deadline_ms)
        at_ms = policy->grace_deadline_ms - policy->spared_ms;
    if (now_ms < at_ms) {
        *wake_ms = earlier_of(*wake_ms, at_ms);
        return 0;
    }
    policy->spared_ms = 0;
    policy->is_rest_signalled = false;
    policy->rest_ms = ct_deadline_after(now_ms, AGENT_RESCAN_MS);
    return POLICY_SIGNAL_SPARED;
}

/* In the order of the times: ask_ms, the rest of the sessions one scan later, orphans,
 * helpers, the spared workers, the end of the grace. *wake_ms is the earliest of those to come. */
static unsigned ask(struct policy *policy, const struct policy_census *census,
                    uint64_t now_ms, uint64_t *wake_ms)
{
    unsigned actions = 0;

    *wake_ms = policy->grace_deadline_ms;
    if (policy->signal && now_ms < policy->ask_ms) {
        *wake_ms = policy->ask_ms;
    } else if (policy->signal && !policy->is_signalled) {
        policy->is_signalled = true;
        policy->is_rest_signalled = false;
        policy->rest_ms = ct_deadline_after(now_ms, AGENT_RESCAN_MS);
        actions |= POLICY_SIGNAL;
    }
    actions |= ask_spared(policy, now_ms, wake_ms);
    if (policy->is_signalled && !policy->is_rest_signalled &&
        now_ms >= policy->rest_ms) {
        policy->is_rest_signalled = true;
        actions |= POLICY_SIGNAL_REST;
    }
    if (policy->is_signalled && !policy->is_rest_signalled)
        *wake_ms = earlier_of(*wake_ms, policy->rest_ms);
    actions |= ask_helpers(policy, census, now_ms, wake_ms);
    if (now_ms < policy->orphan_deadline_ms) {
        *wake_ms = earlier_of(*wake_ms, policy->orphan_deadline_ms);
    } else if (census->orphans > 0) {
        /* repeat until they are gone */
        *wake_ms = earlier_of(*wake_ms, ct_deadline_after(now_ms, AGENT_RESCAN_MS));
        actions |= POLICY_KILL_ORPHANS;
    }
    return actions;
}

unsigned policy_next(struct policy *policy, const struct policy_census *census,
                     uint64_t now_ms, uint64_t *wake_ms)
{
    *wake_ms = UINT64_MAX;
    if (policy->phase != POLICY_ASKED && policy->phase != POLICY_KILLING)
        return 0;
    /* Checked before any deadline: when no process is left, a grace time that is over does not
     * matter. */
    if (census->asked == 0 && census->orphans == 0) {
        policy->phase = POLICY_DONE;
        return 0;
    }
    if (policy->phase == POLICY_ASKED && now_ms < policy->grace_deadline_ms)
        return ask(policy, census, now_ms, wake_ms);
    if (policy->phase == POLICY_ASKED) {
        policy->phase = POLICY_KILLING;
        policy->kill_deadline_ms = ct_deadline_after(now_ms, AGENT_KILL_WAIT_MS);
    }
    if (now_ms >= policy->kill_deadline_ms) {
        policy->phase = POLICY_UNKILLABLE;
        return 0;
    }
    *wake_ms = ct_deadline_after(now_ms, AGENT_RESCAN_MS);
    return POLICY_KILL_ALL;
}
