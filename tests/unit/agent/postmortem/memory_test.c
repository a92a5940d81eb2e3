/* SPDX-License-Identifier: Apache-2.0 */
/* The last minute of a worker's memory use, and how it is printed. */
#include <unistd.h>

#include "agent/postmortem/memory.h"
#include "tests/lib/test.h"

static void expect(const struct memory_curve *curve, uint64_t peak_kib, uint64_t now_ms,
                   const char *expected)
{
    char text[MEMORY_TEXT_MAX];

    memory_format(text, curve, peak_kib, now_ms);
    assert_string_equal(text, expected);
}

TEST(without_samples_there_is_no_curve)
{
    struct memory_curve curve = {0};

    expect(&curve, 4096, 1000, "");
    memory_add(&curve, -1, 10); /* the process is gone */
    memory_add(&curve, 0, 10);  /* the process is dead */
    assert_int_equal(memory_count(&curve), 0);
}

TEST(the_peak_comes_last_when_no_sample_has_seen_it)
{
    struct memory_curve curve = {0};

    memory_add(&curve, 10 << 10, 1000);
    expect(&curve, 64 << 10, 1500, "in the last 1 s: 10 -> 64 MiB");
    expect(&curve, 10 << 10, 1000, "in the last 1 s: 10 MiB");
    expect(&curve, 5 << 10, 1000, "in the last 1 s: 10 MiB");
    expect(&curve, 1 << 20, 1000, "in the last 1 s: 0.0 -> 1.0 GiB");
    memory_add(&curve, (1 << 20) + (1 << 17), 6000);
    expect(&curve, 4 << 20, 10001, "in the last 10 s: 0.0 -> 1.1 -> 4.0 GiB");
}

TEST(the_ring_has_the_last_minute_and_tells_first_last_and_between)
{
    struct memory_curve curve = {0};

    for (int i = 1; i <= 30; i++)
        memory_add(&curve, i << 10, (uint64_t)i * MEMORY_EVERY_MS);
    assert_int_equal(memory_count(&curve), MEMORY_SAMPLES);
    assert_int_equal(memory_get(&curve, 0), 19 << 10);
    assert_int_equal(memory_get(&curve, MEMORY_SAMPLES - 1), 30 << 10);
    expect(&curve, 0, 30 * MEMORY_EVERY_MS,
           "in the last 56 s: 19 -> 21 -> 23 -> 25 -> 27 -> 30 MiB");
}

TEST(more_than_the_counter_holds_is_the_most_it_holds)
{
    struct memory_curve curve = {0};

    memory_add(&curve, INT64_MAX, 1);
    assert_int_equal(memory_get(&curve, 0), UINT32_MAX);
}

TEST(our_own_memory_can_be_read_and_that_of_nobody_not)
{
    assert_true(memory_read_kib(getpid()) > 100);
    assert_int_equal(memory_read_kib(0x7ffffffe), -1);
}
