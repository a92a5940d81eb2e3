/* SPDX-License-Identifier: Apache-2.0 */
/* Which process is gone: who believes that too early kills what is alive. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/small_file.h"

static void a_process_is_known_by_pid_and_start(void **state)
{
    const uint64_t started = ct_small_file_started(getpid());

    (void)state;
    assert_true(started > 0);
    assert_false(ct_small_file_has_ended(getpid(), started));
    assert_true(
        ct_small_file_has_ended(getpid(), started + 1)); /* the pid was used again */
}

static void a_process_that_was_reaped_has_ended(void **state)
{
    const pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ct_small_file_has_ended(pid, 1));
}

/* Without a free descriptor nothing can be read in /proc. */
static void a_process_of_which_nothing_can_be_read_has_not_ended(void **state)
{
    struct rlimit before, none;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(ct_small_file_started(getpid()), 0);
    assert_false(ct_small_file_has_ended(getpid(), 1));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_known_by_pid_and_start),
        cmocka_unit_test(a_process_that_was_reaped_has_ended),
        cmocka_unit_test(a_process_of_which_nothing_can_be_read_has_not_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
