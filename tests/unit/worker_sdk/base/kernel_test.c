/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers and names in base/kernel.h and base/signal_name.h equal those of this system's
 * headers. */
#include <errno.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/kernel.h"
#include "worker_sdk/base/signal_name.h"

TEST(numbers_are_those_of_the_headers)
{
    assert_int_equal(CT_SYS_pidfd_send_signal, SYS_pidfd_send_signal);
    assert_int_equal(CT_SYS_pidfd_open, SYS_pidfd_open);
    assert_int_equal(CT_SYS_clone3, SYS_clone3);
    assert_int_equal(CT_SYS_close_range, SYS_close_range);
    assert_int_equal(CT_SYS_pidfd_getfd, SYS_pidfd_getfd);
    assert_int_equal(CT_CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_CLOEXEC);
    assert_int_equal(CT_MADV_POPULATE_WRITE, MADV_POPULATE_WRITE);
    assert_int_equal(CT_CLONE_VM, CLONE_VM);
    assert_int_equal(CT_CLONE_CLEAR_SIGHAND, CLONE_CLEAR_SIGHAND);
    assert_int_equal(CT_CLONE_INTO_CGROUP, CLONE_INTO_CGROUP);
    assert_int_equal(CT_STATX_BTIME, STATX_BTIME);
}

TEST(structs_are_those_of_the_headers)
{
    assert_int_equal(sizeof(struct ct_clone_args), CLONE_ARGS_SIZE_VER2);
    assert_int_equal(offsetof(struct ct_clone_args, stack),
                     offsetof(struct clone_args, stack));
    assert_int_equal(offsetof(struct ct_clone_args, cgroup),
                     offsetof(struct clone_args, cgroup));
    assert_int_equal(sizeof(struct ct_statx), sizeof(struct statx));
    assert_int_equal(offsetof(struct ct_statx, btime_seconds),
                     offsetof(struct statx, stx_btime));
    assert_int_equal(offsetof(struct ct_statx, btime_nanos),
                     offsetof(struct statx, stx_btime.tv_nsec));
}

TEST(signals_have_the_names_that_glibc_gives_them)
{
    for (int i = -1; i < NSIG + 1; i++)
        if (sigabbrev_np(i))
            assert_string_equal(ct_signal_name(i), sigabbrev_np(i));
        else
            assert_null(ct_signal_name(i));
}

TEST(an_error_past_the_last_has_no_text)
{
    assert_string_equal(ctrun_strerror(-EHWPOISON), strerrordesc_np(EHWPOISON));
    assert_string_equal(ctrun_strerror(-EHWPOISON - 1), "unknown error");
}
