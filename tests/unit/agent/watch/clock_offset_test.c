/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/clock_offset.h"
#include "tests/lib/test.h"

enum {
    MS = 1000000
};

static const uint64_t second = 1000 * (uint64_t)MS;

/* Adds enough answers, all of them slow. */
static void add_slow(struct clock_offset *offset)
{
    for (int i = 0; i < CLOCK_OFFSET_SAMPLES_MIN; i++)
        clock_offset_add(offset, 0, 0, 90 * second);
}

TEST(little_is_known_before_some_answers)
{
    struct clock_offset offset = {0};
    int64_t ahead;
    uint64_t doubt;

    for (int i = 0; i < CLOCK_OFFSET_SAMPLES_MIN; i++) {
        assert_false(clock_offset_get(&offset, second, &ahead, &doubt));
        clock_offset_add(&offset, second, 5 * second, second - 1); /* of no question */
        assert_false(clock_offset_get(&offset, second, &ahead, &doubt));
        clock_offset_add(&offset, second, second, second);
    }
    assert_true(clock_offset_get(&offset, second, &ahead, &doubt));
}

TEST(an_answer_lies_in_the_middle_and_is_doubted_by_half)
{
    struct clock_offset offset = {0};
    int64_t ahead;
    uint64_t doubt;

    add_slow(&offset);
    clock_offset_add(&offset, 10 * second, 3 * second, 10 * second + 4 * MS);
    assert_true(clock_offset_get(&offset, 10 * second + 4 * MS, &ahead, &doubt));
    assert_int_equal(ahead, -(int64_t)(7 * second) - 2 * MS); /* the server is behind */
    assert_int_equal(doubt, 2 * MS);
}

TEST(the_quickest_answer_counts_until_clocks_may_have_drifted)
{
    struct clock_offset offset = {0};
    int64_t ahead;
    uint64_t doubt;

    add_slow(&offset);
    clock_offset_add(&offset, second, second, second + MS);
    clock_offset_add(&offset, 2 * second, 2 * second, 2 * second + 3 * MS);
    assert_true(clock_offset_get(&offset, 3 * second, &ahead, &doubt));
    assert_int_equal(ahead, -MS / 2);
    assert_in_range(doubt, MS / 2 + 90000, MS / 2 + 110000); /* 50 us a second */
    clock_offset_add(&offset, 99 * second, 99 * second, 99 * second + 3 * MS);
    assert_true(clock_offset_get(&offset, 100 * second, &ahead, &doubt));
    assert_int_equal(ahead, -3 * MS / 2);
}

TEST(only_the_last_answers_are_kept)
{
    struct clock_offset offset = {0};
    int64_t ahead;
    uint64_t doubt;

    clock_offset_add(&offset, second, 9 * second, second + 2);
    for (int i = 0; i < CLOCK_OFFSET_SAMPLES; i++)
        clock_offset_add(&offset, second, second, second + MS);
    assert_true(clock_offset_get(&offset, second + MS, &ahead, &doubt));
    assert_int_equal(ahead, -MS / 2);
}
