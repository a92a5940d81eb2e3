/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/rate.h"
#include "tests/lib/test.h"

/* Bytes of whole lines that pass in this many seconds, with a try every millisecond. */
static uint64_t pass(struct rate *rate, uint64_t line, uint64_t from_ms,
                     uint64_t until_ms)
{
    uint64_t bytes = 0;

    for (uint64_t ms = from_ms; ms < until_ms; ms++)
        while (rate_admits(rate, ms)) {
            rate_spend(rate, line);
            bytes += line;
        }
    return bytes;
}

TEST(a_burst_of_one_second_passes_and_then_the_rate)
{
    static const uint64_t lines[] = {1, 7, 80, 1000};

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct rate rate;
        uint64_t bytes;

        rate_init(&rate, 1024, 5000);
        bytes = pass(&rate, lines[i], 5000, 5001);
        assert_true(bytes >= 1024 && bytes < 1024 + lines[i]);
        bytes += pass(&rate, lines[i], 5001, 15000);
        assert_true(bytes >= 11 * 1024 - 2 && bytes < 11 * 1024 + lines[i]);
    }
}

TEST(silence_saves_up_one_second_and_no_more)
{
    struct rate rate;
    uint64_t bytes;

    rate_init(&rate, 2048, 0);
    (void)pass(&rate, 64, 0, 1);
    bytes = pass(&rate, 64, UINT64_MAX / 4, UINT64_MAX / 4 + 1);
    assert_true(bytes >= 2048 && bytes < 2048 + 64);
}

TEST(a_line_longer_than_the_bucket_passes_and_is_paid_for)
{
    struct rate rate;

    rate_init(&rate, 1024, 0);
    assert_true(rate_admits(&rate, 0));
    rate_spend(&rate, 5 * 1024);
    assert_false(rate_admits(&rate, 4000));
    assert_true(rate_admits(&rate, 4001));
}

TEST(the_largest_rate_does_not_overflow)
{
    struct rate rate;

    rate_init(&rate, 1ull << RATE_SHIFT_MAX, 0);
    for (uint64_t ms = 0; ms < 10; ms++) {
        assert_true(rate_admits(&rate, ms * (UINT64_MAX / 16)));
        rate_spend(&rate, 1ull << 30);
    }
}
