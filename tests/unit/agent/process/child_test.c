/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "agent/process/child.h"
#include "agent/process/raw.h"
#include "tests/lib/test.h"

struct scene {
    _Alignas(16) char stack[16 * 1024];
    int written;
};

static _Noreturn void leave_a_mark(void *context)
{
    struct scene *scene = context;

    scene->written = 42;
    for (;;)
        (void)raw_call(SYS_exit_group, 7, 0, 0, 0);
}

static int start_and_reap(struct scene *scene)
{
    const pid_t pid = child_start(leave_a_mark, scene, scene->stack,
                                  sizeof scene->stack, -1);
    int status = -1;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_child_runs_beside_us_in_our_memory)
{
    static struct scene scene;

    assert_int_equal(start_and_reap(&scene), 7);
    if (raw_call(SYS_clone3, 0, 0, 0, 0) != -EINVAL)
        skip(); /* an old kernel or a container's filter: it was a copy */
#ifdef CHILD_IS_COPY
    assert_int_equal(scene.written, 0);
#elif defined(__x86_64__) || defined(__aarch64__)
    assert_int_equal(scene.written, 42);
#endif
}

TEST(with_the_switch_off_a_child_is_a_copy)
{
    static struct scene scene;

    setenv(CHILD_ENV_CLONE3, "0", 1);
    assert_int_equal(start_and_reap(&scene), 7);
    assert_int_equal(scene.written, 0);
    /* A copy cannot start in a cgroup: the caller moves it there. */
    assert_int_equal(
        child_start(leave_a_mark, &scene, scene.stack, sizeof scene.stack, 0), -ENOSYS);
    unsetenv(CHILD_ENV_CLONE3);
}

TEST(a_cgroup_that_is_none_is_refused_and_nobody_is_born)
{
    static struct scene scene;

    assert_true(
        child_start(leave_a_mark, &scene, scene.stack, sizeof scene.stack, 12345) < 0);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
}

TEST(a_raw_call_leaves_errno_alone)
{
    errno = ENOTTY;
    assert_int_equal(raw_call(SYS_close, -1, 0, 0, 0), -EBADF);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_int_equal(errno, ENOTTY);
#endif
}
