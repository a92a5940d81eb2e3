/* SPDX-License-Identifier: Apache-2.0 */

#include "agent/watch/allocation.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

TEST(what_is_left_is_counted_by_the_wall_clock)
{
    assert_int_equal(allocation_left_ms(100, 40ull * 1000000000), 60000);
    assert_int_equal(allocation_left_ms(100, 99999ull * 1000000), 1);
    assert_int_equal(allocation_left_ms(100, 100ull * 1000000000), 0);
    assert_int_equal(allocation_left_ms(100, 100500ull * 1000000), 0);
    assert_int_equal(allocation_left_ms(100, 5000ull * 1000000000), 0);
    assert_int_equal(allocation_left_ms(0, 1), 0);
    assert_int_equal(allocation_left_ms(INT64_MAX, 1), UINT64_MAX);
    assert_int_equal(allocation_left_ms(INT64_MAX / 100, 1), UINT64_MAX);
}

TEST(workers_never_get_all_of_it)
{
    assert_int_equal(allocation_grace_ms(120000), 108000);
    assert_int_equal(allocation_grace_ms(5000), 4000);
    assert_int_equal(allocation_grace_ms(1000), 500);
    assert_int_equal(allocation_grace_ms(0), 0);
    for (uint64_t left_ms = 1; left_ms < 100000; left_ms += 7)
        assert_true(allocation_grace_ms(left_ms) < left_ms);
}

struct called {
    struct loop *loop;
    int times;
};

static void on_time(void *context)
{
    struct called *called = context;

    called->times++;
    loop_stop(called->loop);
}

/* An end that is over, at time 0 too, and an end in the future. */
TEST(it_is_told_once_and_at_once_when_it_is_over)
{
    const int64_t now_s = (int64_t)(ct_wall_ns() / 1000000000);
    const int64_t times[] = {now_s + 1, now_s - 1, 0, -5};

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct called called = {0};
        struct allocation *allocation;

        assert_int_equal(loop_create(&called.loop), 0);
        assert_int_equal(
            allocation_open(&allocation, called.loop, times[i], on_time, &called), 0);
        loop_run(called.loop);
        assert_true((int64_t)(ct_wall_ns() / 1000000000) >= times[i]);
        assert_int_equal(called.times, 1);
        allocation_close(allocation);
        assert_int_equal(loop_destroy(called.loop), 0);
    }
    allocation_close(NULL);
}
