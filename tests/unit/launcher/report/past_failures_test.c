/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of earlier rounds for the report at the end. */
#include "launcher/report/past_failures.h"

#include "tests/lib/test.h"

static void add(struct past_failures *past, uint64_t generation)
{
    const struct ct_stop stop = {
        .reason = CT_STOP_FAILURE,
        .cause = {.generation = generation, .cause = CT_CAUSE_EXIT, .rank = 2}};

    past_failures_add(past, &stop);
}

TEST(the_newest_are_kept_and_the_others_counted)
{
    struct past_failures past = {0};

    for (uint64_t g = 1; g <= PAST_FAILURES_MAX + 3; g++)
        add(&past, g);
    assert_int_equal(past.count, PAST_FAILURES_MAX);
    assert_int_equal(past.left_out, 3);
    assert_int_equal(past.list[0]->cause.generation, 4);
    past_failures_deinit(&past);
    assert_int_equal(past.count, 0);
}

TEST(stops_without_a_failure_or_without_a_restart_are_none)
{
    struct past_failures past = {0};
    struct ct_stop stop = {.reason = CT_STOP_FAILURE, .is_final = true};

    stop.cause.cause = CT_CAUSE_EXIT;
    past_failures_add(&past, &stop);
    stop.is_final = false;
    stop.reason = CT_STOP_UNDECIDED;
    past_failures_add(&past, &stop);
    assert_int_equal(past.count, 0);
}

/* No new round began: the verdict begins with that failure. */
TEST(what_the_verdict_tells_is_not_told_twice)
{
    struct past_failures past = {0};
    struct ct_verdict verdict = {
        .failure_count = 1,
        .failures = {{.generation = 9, .cause = CT_CAUSE_STOPPED, .rank = 0}}};

    add(&past, 8);
    add(&past, 9);
    past_failures_end(&past, &verdict);
    assert_int_equal(past.count, 2);
    verdict.failures[1] = past.list[1]->cause;
    verdict.failure_count = 2;
    past_failures_end(&past, &verdict);
    assert_int_equal(past.count, 1);
    assert_int_equal(past.list[0]->cause.generation, 8);
    past_failures_deinit(&past);
}
