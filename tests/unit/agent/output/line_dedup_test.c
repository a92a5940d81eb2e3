/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/output/line_dedup.h"
#include "tests/lib/test.h"

enum {
    DELAY = 100,
    WORKERS = 70 /* more than one word of a bit set */
};

static struct line_dedup *dedup;

static int begin(void **state)
{
    dedup = line_dedup_create(WORKERS, 4096, DELAY);
    assert_non_null(dedup);
    line_dedup_set_expected(dedup, 3);
    return 0;
}

static int end(void **state)
{
    line_dedup_destroy(dedup);
    return 0;
}

static void add(int worker, const char *text, uint64_t now_ms)
{
    assert_int_equal(line_dedup_add(dedup, worker, 0, text, strlen(text), now_ms), 0);
}

/* "0-2 text|3 other": all lines that may be printed at now_ms. */
static const char *take(uint64_t now_ms, bool is_all)
{
    static char out[1024];
    const struct line_dedup_line *line;
    char workers[64];
    int used = 0;

    out[0] = '\0';
    while ((line = line_dedup_peek(dedup, now_ms, is_all))) {
        line_dedup_format(workers, sizeof workers, line->workers, WORKERS, 0);
        used += snprintf(out + used, sizeof out - (size_t)used, "%s%s %.*s",
                         used ? "|" : "", workers, (int)line->length, line->text);
        line_dedup_pop(dedup);
    }
    return out;
}

TEST_AROUND(a_line_that_all_write_goes_at_once_and_once, begin, end)
{
    add(0, "x", 0);
    add(2, "x", 1);
    assert_string_equal(take(1, false), "");
    add(1, "x", 2);
    assert_string_equal(take(2, false), "0-2 x");
    assert_int_equal(line_dedup_wake_ms(dedup), UINT64_MAX);
}

TEST_AROUND(a_line_waits_no_longer_than_the_delay, begin, end)
{
    add(0, "x", 10);
    add(1, "x", 60);
    assert_int_equal(line_dedup_wake_ms(dedup), 10 + DELAY);
    assert_string_equal(take(9 + DELAY, false), "");
    assert_string_equal(take(10 + DELAY, false), "0-1 x");
    add(2, "x", 120); /* too late */
    assert_string_equal(take(120 + DELAY, false), "2 x");
}

TEST_AROUND(lines_come_out_in_the_order_of_their_first, begin, end)
{
    add(0, "a", 0);
    add(0, "b", 0);
    add(1, "b", 1);
    add(2, "b", 1); /* complete, but "a" is older and comes first */
    assert_string_equal(take(1, false), "");
    assert_string_equal(take(DELAY, false), "0 a|0-2 b");
}

TEST_AROUND(each_workers_order_is_kept, begin, end)
{
    add(0, "a", 0);
    add(0, "b", 0);
    add(1, "b", 0);
    add(1, "a", 0); /* after its own "b", so it does not belong to the first "a" */
    assert_string_equal(take(0, true), "0 a|0-1 b|1 a");
}

TEST_AROUND(a_line_that_comes_twice_is_shown_twice, begin, end)
{
    for (int i = 0; i < 3; i++) {
        add(i, "x", 0);
        add(i, "x", 0);
    }
    assert_string_equal(take(0, false), "0-2 x|0-2 x");
}

TEST_AROUND(lines_of_different_kinds_are_not_alike, begin, end)
{
    add(0, "x", 0);
    assert_int_equal(line_dedup_add(dedup, 1, 1, "x", 1, 0), 0);
    assert_string_equal(take(0, true), "0 x|1 x");
}

TEST_AROUND(what_waits_is_bounded, begin, end)
{
    char text[24];
    int count = 0;
    int rc;

    do {
        (void)snprintf(text, sizeof text, "line %d", count++);
        rc = line_dedup_add(dedup, 0, 0, text, strlen(text), 0);
    } while (rc == 0 && count < 1000);
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(line_dedup_add(dedup, 1, 0, "line 0", 6, 0),
                     0); /* needs no room */
    line_dedup_pop(dedup);
    assert_int_equal(line_dedup_add(dedup, 0, 0, text, strlen(text), 0), 0);
}

TEST_AROUND(a_line_above_the_bound_is_taken_alone, begin, end)
{
    static char text[8192];

    memset(text, 'x', sizeof text);
    assert_int_equal(line_dedup_add(dedup, 0, 0, text, sizeof text, 0), 0);
    assert_int_equal(line_dedup_add(dedup, 1, 0, text, sizeof text, 0), 0);
    assert_int_equal(line_dedup_add(dedup, 0, 0, "y", 1, 0), -ENOBUFS);
    assert_int_equal(line_dedup_peek(dedup, 0, true)->length, sizeof text);
    line_dedup_pop(dedup);
    assert_int_equal(line_dedup_add(dedup, 0, 0, "y", 1, 0), 0);
}

TEST_AROUND(many_lines_keep_their_order, begin, end)
{
    char text[32];
    char all[1024] = "";

    line_dedup_set_expected(dedup, 2);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(text, sizeof text, "%d", i % 7);
        add(0, text, 0);
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s0,69 %d",
                       i ? "|" : "", i % 7);
    }
    for (int i = 0; i < 20; i++) {
        (void)snprintf(text, sizeof text, "%d", i % 7);
        add(69, text, 0);
    }
    assert_string_equal(take(0, false), all);
}

TEST(workers_are_written_as_ranges)
{
    const uint64_t some[2] = {0x4f, 0x3};
    const uint64_t odd[2] = {0xaaaaaaaaaaaaaaaa, 0};
    char text[32];

    line_dedup_format(text, sizeof text, some, WORKERS, 0);
    assert_string_equal(text, "0-3,6,64-65");
    line_dedup_format(text, sizeof text, some, 7, 100);
    assert_string_equal(text, "100-103,106");
    line_dedup_format(text, sizeof text, odd, WORKERS, 0);
    assert_string_equal(text, "32 workers");
}
