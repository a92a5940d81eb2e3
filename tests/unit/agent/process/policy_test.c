/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "agent/loop/limits.h"
#include "agent/process/policy.h"
#include "tests/lib/test.h"

static unsigned next(struct policy *policy, int asked, int orphans, uint64_t now_ms,
                     uint64_t *wake_ms)
{
    const struct policy_census census = {
        .workers = asked, .asked = asked, .orphans = orphans};

    return policy_next(policy, &census, now_ms, wake_ms);
}

TEST(workers_are_asked_once_and_killed_after_the_grace)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    assert_int_equal(next(&policy, 2, 0, 1000, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(wake_ms, 1000 + AGENT_RESCAN_MS);
    assert_int_equal(next(&policy, 2, 0, 1000 + AGENT_RESCAN_MS, &wake_ms),
                     POLICY_SIGNAL_REST);
    assert_int_equal(next(&policy, 2, 0, 1500, &wake_ms), 0);
    assert_int_equal(wake_ms, 31000);
    assert_int_equal(next(&policy, 1, 0, 31000, &wake_ms), POLICY_KILL_ALL);
    assert_int_equal(policy.phase, POLICY_KILLING);
    assert_int_equal(next(&policy, 0, 0, 31001, &wake_ms), 0);
    assert_int_equal(policy.phase, POLICY_DONE);
}

TEST(survivors_are_asked_after_their_grace_and_have_the_whole_other_then)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    policy_postpone(&policy, 5000);
    assert_int_equal(next(&policy, 2, 0, 1000, &wake_ms), 0);
    assert_int_equal(wake_ms, 1000 + AGENT_ORPHAN_MS);
    assert_int_equal(next(&policy, 2, 1, 1000 + AGENT_ORPHAN_MS, &wake_ms),
                     POLICY_KILL_ORPHANS);
    assert_int_equal(next(&policy, 2, 0, 5999, &wake_ms), 0);
    assert_int_equal(wake_ms, 6000);
    assert_int_equal(next(&policy, 2, 0, 6000, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(next(&policy, 2, 0, 35999, &wake_ms), POLICY_SIGNAL_REST);
    assert_int_equal(wake_ms, 36000);
    assert_int_equal(next(&policy, 2, 0, 36000, &wake_ms), POLICY_KILL_ALL);
}

TEST(who_is_in_a_hurry_asks_survivors_at_once)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    policy_postpone(&policy, 60000);
    assert_int_equal(next(&policy, 2, 0, 1000, &wake_ms), 0);
    policy_hurry(&policy, SIGINT, 2000, 1500);
    assert_int_equal(next(&policy, 2, 0, 1500, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(next(&policy, 2, 0, 3500, &wake_ms), POLICY_KILL_ALL);
}

TEST(workers_that_save_by_themselves_are_asked_shortly_before_the_end_of_the_grace)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    policy_spare(&policy, 1000);
    assert_int_equal(next(&policy, 2, 0, 1000, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(next(&policy, 2, 0, 1500, &wake_ms), POLICY_SIGNAL_REST);
    assert_int_equal(wake_ms, 30000);
    policy_hurry(&policy, SIGTERM, 30000, 2000); /* another reason to stop */
    policy_extend(&policy, 39000, 2000);
    assert_int_equal(next(&policy, 2, 0, 39999, &wake_ms), 0);
    assert_int_equal(wake_ms, 40000);
    assert_int_equal(next(&policy, 2, 0, 40000, &wake_ms), POLICY_SIGNAL_SPARED);
    assert_int_equal(next(&policy, 2, 0, 40000 + AGENT_RESCAN_MS, &wake_ms),
                     POLICY_SIGNAL_REST);
    assert_int_equal(wake_ms, 41000);
    assert_int_equal(next(&policy, 2, 0, 41000, &wake_ms), POLICY_KILL_ALL);
}

TEST(who_cannot_wait_asks_all_at_once)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    policy_spare(&policy, 1000);
    (void)next(&policy, 2, 0, 1000, &wake_ms);
    policy_hurry(&policy, SIGTERM, 2000, 1500);
    policy_spare(&policy, UINT64_MAX);
    assert_int_equal(next(&policy, 2, 0, 1500, &wake_ms), POLICY_SIGNAL_SPARED);
}

TEST(nobody_left_ends_it_at_once)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 1000);
    assert_int_equal(next(&policy, 0, 0, 1000, &wake_ms), 0);
    assert_int_equal(policy.phase, POLICY_DONE);
}

TEST(grace_0_asks_nobody)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 0, 1000);
    assert_int_equal(next(&policy, 2, 0, 1000, &wake_ms), POLICY_KILL_ALL);
}

TEST(orphans_have_a_moment_while_workers_have_the_grace)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 0);
    (void)next(&policy, 1, 1, 0, &wake_ms);
    assert_false(policy_wants_census(&policy, AGENT_ORPHAN_MS - 1));
    assert_int_equal(next(&policy, 1, 1, AGENT_ORPHAN_MS - 1, &wake_ms),
                     POLICY_SIGNAL_REST);
    assert_int_equal(wake_ms, AGENT_ORPHAN_MS);
    assert_true(policy_wants_census(&policy, AGENT_ORPHAN_MS));
    assert_int_equal(next(&policy, 1, 1, AGENT_ORPHAN_MS, &wake_ms),
                     POLICY_KILL_ORPHANS);
    assert_int_equal(next(&policy, 1, 0, AGENT_ORPHAN_MS + 1, &wake_ms), 0);
    assert_int_equal(wake_ms, 30000);
}

TEST(what_workers_left_in_their_sessions_has_a_short_grace)
{
    struct policy policy = {0};
    struct policy_census census = {.workers = 1, .asked = 2};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 0);
    assert_int_equal(policy_next(&policy, &census, 0, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(policy_next(&policy, &census, 10000, &wake_ms),
                     POLICY_SIGNAL_REST);
    assert_int_equal(wake_ms, 30000);
    census = (struct policy_census){.asked = 1};
    assert_int_equal(policy_next(&policy, &census, 11000, &wake_ms), 0);
    assert_int_equal(wake_ms, 11000 + AGENT_HELPER_MS);
    assert_int_equal(policy_next(&policy, &census, wake_ms - 1, &wake_ms), 0);
    assert_int_equal(policy_next(&policy, &census, wake_ms, &wake_ms),
                     POLICY_KILL_HELPERS);
    assert_int_equal(wake_ms, 11000 + AGENT_HELPER_MS + AGENT_HELPER_RESCAN_MS);
    census.asked = 0;
    assert_int_equal(policy_next(&policy, &census, wake_ms, &wake_ms), 0);
    assert_int_equal(policy.phase, POLICY_DONE);
}

TEST(only_orphans_are_not_asked)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, 0, 30000, 0);
    assert_int_equal(next(&policy, 0, 2, 0, &wake_ms), 0);
    assert_int_equal(next(&policy, 0, 2, AGENT_ORPHAN_MS, &wake_ms),
                     POLICY_KILL_ORPHANS);
}

TEST(what_survives_sigkill_is_given_up)
{
    struct policy policy = {0};
    uint64_t now_ms = 500;
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 0, now_ms);
    while (next(&policy, 1, 0, now_ms, &wake_ms) == POLICY_KILL_ALL)
        now_ms = wake_ms;
    assert_int_equal(policy.phase, POLICY_UNKILLABLE);
    assert_int_equal(now_ms, 500 + AGENT_KILL_WAIT_MS);
    assert_int_equal(wake_ms, UINT64_MAX);
}

TEST(hurrying_shortens_the_grace_and_asks_again)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGINT, 30000, 0);
    (void)next(&policy, 1, 0, 0, &wake_ms);
    policy_hurry(&policy, SIGTERM, 2000, 1000);
    assert_int_equal(next(&policy, 1, 0, 1000, &wake_ms), POLICY_SIGNAL);
    assert_int_equal(policy.signal, SIGTERM);
    assert_int_equal(policy.grace_deadline_ms, 3000);
    policy_hurry(&policy, SIGTERM, 60000, 1000); /* never longer */
    assert_int_equal(policy.grace_deadline_ms, 3000);
}

/* A node leaves, so the workers of the other nodes are stopped; then the same scancel or Ctrl-C
 * reaches those nodes. */
TEST(two_reasons_to_stop_are_one_signal_and_the_longer_time)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, 30000, 0);
    assert_int_equal(next(&policy, 1, 0, 0, &wake_ms), POLICY_SIGNAL);
    policy_hurry(&policy, SIGTERM, 90000, 1000);
    policy_hurry(&policy, SIGINT, 90000, 1000);
    policy_extend(&policy, 90000, 1000);
    assert_int_equal(next(&policy, 1, 0, 1000, &wake_ms) & POLICY_SIGNAL, 0);
    assert_int_equal(policy.grace_deadline_ms, 91000);
    policy_extend(&policy, 10, 1000); /* never shorter */
    assert_int_equal(policy.grace_deadline_ms, 91000);
    policy_hurry(&policy, SIGTERM, 2000, 1000); /* a third Ctrl-C shortens it */
    assert_int_equal(policy.grace_deadline_ms, 3000);
}

TEST(endless_times_do_not_overflow)
{
    struct policy policy = {0};
    uint64_t wake_ms;

    policy_begin(&policy, SIGTERM, UINT64_MAX, 5000);
    assert_int_equal(next(&policy, 1, 0, 5000, &wake_ms), POLICY_SIGNAL);
    assert_true(policy.grace_deadline_ms == UINT64_MAX);
}
