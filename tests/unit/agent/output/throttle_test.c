/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces of lines are left out, and that the output reports all of them. */
#include "agent/output/throttle.h"
#include "tests/lib/test.h"

struct told {
    int times;
    uint64_t lines;
    uint64_t bytes;
};

static void tell(void *context, int rank, uint64_t lines, uint64_t bytes)
{
    struct told *told = context;

    assert_int_equal(rank, 3);
    told->times++;
    told->lines += lines;
    told->bytes += bytes;
}

TEST(what_is_left_out_ends_with_its_line_and_is_told_at_the_end)
{
    struct told told = {0};
    struct throttle_line out = {0};
    struct throttle_line err = {0};
    struct throttle *throttle;
    struct loop *loop;

    assert_int_equal(loop_create(&loop), 0);
    throttle = throttle_open(loop, 1000, tell, &told, 3);
    assert_non_null(throttle);
    assert_true(throttle_takes(throttle, &out, "50%", 3, 10));
    /* The prefix counts: the rate needs a quarter of an hour for this. */
    assert_true(throttle_takes(throttle, &out, "\r", 1, 1000000));
    assert_false(throttle_takes(throttle, &out, "60%\r", 4, 10));
    assert_false(throttle_takes(throttle, &out, "70", 2, 10));
    assert_false(throttle_takes(throttle, &err, "oh\n", 3, 10));
    assert_false(throttle_takes(throttle, &out, "%\n", 2, 10));
    assert_int_equal(told.times, 0);
    throttle_close(throttle);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.lines, 3);
    assert_int_equal(told.bytes, 11);
    assert_int_equal(loop_destroy(loop), 0);
}

TEST(what_takes_everything_tells_nothing)
{
    struct told told = {0};
    struct throttle_line out = {0};
    struct throttle *throttle;
    struct loop *loop;

    assert_int_equal(loop_create(&loop), 0);
    throttle = throttle_open(loop, 1000, tell, &told, 3);
    assert_true(throttle_takes(throttle, &out, "a\n", 2, 0));
    throttle_close(throttle);
    assert_int_equal(told.times, 0);
    assert_int_equal(loop_destroy(loop), 0);
}
