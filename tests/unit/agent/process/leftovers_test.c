/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/process/leftovers.h"

static void a_process_is_named_once(void **state)
{
    struct leftovers leftovers = {0};
    char start[32];

    (void)state;
    assert_string_equal(leftovers_text(&leftovers), "");
    leftovers_note(&leftovers, getpid());
    leftovers_note(&leftovers, getpid());
    assert_int_equal(leftovers.count, 1);
    (void)snprintf(start, sizeof start, "pid %d (unit_leftov", (int)getpid());
    assert_memory_equal(leftovers_text(&leftovers), start, strlen(start));
    assert_null(strchr(leftovers_text(&leftovers), ','));
}

static void many_of_them_are_counted(void **state)
{
    struct leftovers leftovers = {0};
    const char *text;

    (void)state;
    for (int i = 0; i < 2 * LEFTOVERS_COUNTED_MAX; i++)
        leftovers_note(&leftovers, 1 << 24 | i); /* above every pid: no names */
    assert_int_equal(leftovers.count, LEFTOVERS_COUNTED_MAX);
    text = leftovers_text(&leftovers);
    assert_memory_equal(text, "pid 16777216 (), pid 16777217 (), ", 34);
    assert_non_null(strstr(text, "pid 16777231 () and 48 more"));
    assert_true(strlen(text) < LEFTOVERS_TEXT_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_named_once),
        cmocka_unit_test(many_of_them_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
