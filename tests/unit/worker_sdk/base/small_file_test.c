/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process has ended. A wrong "yes" would kill a live one. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/small_file.h"

static void a_process_is_known_by_pid_and_start(void **state)
{
    const uint64_t started = ct_small_file_started(getpid());

    assert_true(started > 0);
    assert_false(ct_small_file_has_ended(getpid(), started));
    /* The pid was used again. */
    assert_true(ct_small_file_has_ended(getpid(), started + 1));
}

static void a_process_that_was_reaped_has_ended(void **state)
{
    const pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ct_small_file_has_ended(pid, 1));
}

/* Without a free descriptor no file in /proc can be read. */
static void a_process_of_which_nothing_can_be_read_has_not_ended(void **state)
{
    struct rlimit before, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(ct_small_file_started(getpid()), 0);
    assert_false(ct_small_file_has_ended(getpid(), 1));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void a_label_counts_only_where_a_line_begins(void **state)
{
    assert_string_equal(ct_small_file_find("a: b: 1\n\nb: 2\nb: 3", "b:"), " 2\nb: 3");
    assert_string_equal(ct_small_file_find("a: 1", "a:"), " 1");
    assert_null(ct_small_file_find("a: b: 1\n", "b:"));
    assert_null(ct_small_file_find("", "b:"));
}

static void
what_is_behind_a_name_begins_with_the_state_whatever_the_name_is(void **state)
{
    char stat[1024];
    const char *at;

    assert_int_equal(prctl(PR_SET_NAME, "a) Z (b"), 0);
    for (pid_t thread = 0; thread <= getpid(); thread += getpid()) {
        assert_non_null(at = ct_small_file_stat(stat, sizeof stat, getpid(), thread));
        assert_memory_equal(at, "R ", 2);
        assert_int_equal(strtol(at + 2, NULL, 10), getppid());
    }
    assert_null(ct_small_file_stat(stat, sizeof stat, INT32_MAX, 0));
    assert_null(ct_small_file_stat(stat, sizeof stat, getpid(), INT32_MAX));
}

static void who_runs_waits_in_no_function(void **state)
{
    char wait[64] = "?";

    ct_small_file_wait(wait, sizeof wait, getpid(), getpid());
    assert_string_equal(wait, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_known_by_pid_and_start),
        cmocka_unit_test(a_process_that_was_reaped_has_ended),
        cmocka_unit_test(a_label_counts_only_where_a_line_begins),
        cmocka_unit_test(
            what_is_behind_a_name_begins_with_the_state_whatever_the_name_is),
        cmocka_unit_test(who_runs_waits_in_no_function),
        cmocka_unit_test(a_process_of_which_nothing_can_be_read_has_not_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
