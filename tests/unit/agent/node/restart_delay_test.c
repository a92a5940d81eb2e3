/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/restart_delay.h"

#include "tests/lib/test.h"

enum {
    SETTLED = 30000
};

static const struct restart_delay_options options = {1000, 9000, SETTLED};

/* The longest random delay. */
static uint64_t longest(struct restart_delay *delay, int64_t step, uint64_t lasted_ms)
{
    struct restart_delay copy = *delay;
    uint64_t most = 0;

    for (uint64_t random = 0; random < 10000; random++) {
        uint64_t ms;

        *delay = copy;
        ms = restart_delay_next(delay, &options, step, lasted_ms, random);
        most = ms > most ? ms : most;
    }
    return most;
}

TEST(it_doubles_up_to_its_end)
{
    struct restart_delay delay = {.best_step = -1};

    assert_int_equal(longest(&delay, -1, 0), 1000);
    assert_int_equal(longest(&delay, -1, 0), 2000);
    assert_int_equal(longest(&delay, -1, 0), 4000);
    assert_int_equal(longest(&delay, -1, 0), 8000);
    assert_int_equal(longest(&delay, -1, 0), 9000);
    delay.failures = UINT32_MAX;
    assert_int_equal(longest(&delay, -1, 0), 9000);
    assert_int_equal(delay.failures, UINT32_MAX);
}

TEST(it_is_at_least_half_of_that)
{
    for (uint64_t random = 0; random < 5000; random++) {
        struct restart_delay delay = {.failures = 1, .best_step = -1};

        assert_in_range(restart_delay_next(&delay, &options, -1, 0, random), 1000,
                        2000);
    }
}

TEST(a_new_step_begins_it_anew)
{
    struct restart_delay delay = {.best_step = -1};

    assert_int_equal(longest(&delay, 5, 0), 1000);
    assert_int_equal(longest(&delay, 5, SETTLED), 2000); /* the same step again */
    assert_int_equal(longest(&delay, 3, SETTLED), 4000);
    assert_int_equal(longest(&delay, -1, SETTLED), 8000);
    assert_int_equal(longest(&delay, 6, 0), 1000);
}

TEST(a_round_that_lasts_is_progress_where_no_steps_are_told)
{
    struct restart_delay delay = {.best_step = -1};

    assert_int_equal(longest(&delay, -1, SETTLED - 1), 1000);
    assert_int_equal(longest(&delay, -1, SETTLED - 1), 2000);
    assert_int_equal(longest(&delay, -1, SETTLED), 1000);
}

TEST(nobody_waits_unless_asked_to)
{
    static const struct restart_delay_options none = {0, 0, SETTLED};
    struct restart_delay delay = {.best_step = -1};

    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(restart_delay_next(&delay, &none, -1, 0, i), 0);
}
