/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/process/orphans.h"

TEST(a_process_is_named_once)
{
    struct orphans orphans = {0};
    char start[32];

    assert_string_equal(orphans_text(&orphans), "");
    orphans_note(&orphans, getpid());
    orphans_note(&orphans, getpid());
    assert_int_equal(orphans.count, 1);
    (void)snprintf(start, sizeof start, "pid %d (unit_orphan", (int)getpid());
    assert_memory_equal(orphans_text(&orphans), start, strlen(start));
    assert_null(strchr(orphans_text(&orphans), ','));
}

TEST(many_of_them_are_counted)
{
    struct orphans orphans = {0};
    const char *text;

    for (int i = 0; i < 2 * ORPHANS_COUNTED_MAX; i++)
        orphans_note(&orphans, 1 << 24 | i); /* above every pid: no names */
    assert_int_equal(orphans.count, ORPHANS_COUNTED_MAX);
    text = orphans_text(&orphans);
    assert_memory_equal(text, "pid 16777216 (), pid 16777217 (), ", 34);
    assert_non_null(strstr(text, "pid 16777231 () and 48 more"));
    assert_true(strlen(text) < ORPHANS_TEXT_MAX - 1);
}
