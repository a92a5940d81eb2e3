/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "agent/loop/limits.h"
#include "agent/output/logrotate.h"
#include "tests/lib/test.h"

/* How much of the text fits into a file with a cap of 10 bytes; -n: n bytes, after which it is
 * full. */
static int fit(uint64_t size, bool is_in_line, const char *text)
{
    const struct logrotate file = {10, size, is_in_line};
    bool is_full;
    const int n = (int)logrotate_fit(&file, text, strlen(text), &is_full);

    if (is_full && n == 0)
        return -1000;
    return is_full ? -n : n;
}

TEST(all_fits_below_the_cap)
{
    assert_int_equal(fit(0, false, "one\ntwo\n"), 8);
    assert_int_equal(fit(2, false, "one\ntwo\n"), 8);
    assert_int_equal(fit(0, false, ""), 0);
}

TEST(the_last_line_that_fits_is_the_last_of_the_file)
{
    assert_int_equal(fit(0, false, "one\ntwo\nthree\n"), -8);
    assert_int_equal(fit(4, false, "one\ntwo\nthree\n"), -4);
    assert_int_equal(fit(2, true, "e\ntwo\nthree\n"), -6);
}

TEST(a_line_that_does_not_fit_begins_the_next_file)
{
    assert_int_equal(fit(8, false, "three\n"), -1000);
    assert_int_equal(fit(10, false, "a\n"), -1000);
}

TEST(a_line_that_has_begun_is_ended_where_it_is)
{
    assert_int_equal(fit(8, true, "three\nfour\n"), -6);
    assert_int_equal(fit(10, true, "\nfour\n"), -1);
    assert_int_equal(fit(0, false, "a line of 20 bytes.\n"), -20);
}

TEST(a_line_without_end_is_cut_at_last)
{
    static char text[OUTPUT_PIECE_MAX_BYTES];

    memset(text, '.', sizeof text - 1);
    assert_int_equal(fit(9, true, "no end"), 6);
    assert_int_equal(fit(9, true, text), sizeof text - 1);
    assert_int_equal(fit(11, true, text), -(int)(sizeof text - 1));
}

TEST(without_a_cap_all_fits)
{
    const struct logrotate file = {0, 1000000, true};
    bool is_full;

    assert_int_equal(logrotate_fit(&file, "x\n", 2, &is_full), 2);
    assert_false(is_full);
}

TEST(what_is_written_counts)
{
    struct logrotate file = {10, 0, false};

    logrotate_add(&file, "abc", 3);
    assert_true(file.is_in_line);
    logrotate_add(&file, "\n", 1);
    logrotate_add(&file, "", 0);
    assert_false(file.is_in_line);
    assert_int_equal(file.size, 4);
}
