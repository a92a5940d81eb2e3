/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a template that the kernel does not release, or of whose processes there is no list. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/template.h"
#include "tests/lib/test.h"

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

static bool is_stuck, has_blocked;

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    if (!is_stuck)
        return __real_waitpid(pid, status, options);
    has_blocked |= !(options & WNOHANG);
    return options & WNOHANG ? 0 : pid;
}

static void on_settled(void *context)
{
}

TEST(one_that_hangs_in_the_kernel_is_not_waited_for)
{
    const struct template_plan plan = {.python = "sleep",
                                       .modules = "",
                                       .script = "",
                                       .env = environ,
                                       .workers = 1,
                                       .limit_ms = 60000};
    struct template *template;
    struct loop *loop;

    assert_int_equal(loop_create(&loop), 0);
    template = template_create(loop, &plan, on_settled, NULL);
    assert_non_null(template);
    assert_true(template_is_starting(template));
    is_stuck = true;
    template_destroy(template);
    is_stuck = false;
    assert_false(has_blocked);
    assert_true(__real_waitpid(-1, NULL, 0) > 0);
    assert_int_equal(loop_destroy(loop), 0);
}

static void stop_loop(void *context)
{
    loop_stop(context);
}

/* Its imports take too long; reading /proc needs a descriptor. */
TEST(one_is_killed_when_no_descriptor_is_left)
{
    const struct template_plan plan = {.python = "/proc/self/exe", /* hangs() */
                                       .modules = "",
                                       .script = "",
                                       .env = environ,
                                       .workers = 1,
                                       .limit_ms = 1};
    struct template *template;
    struct rlimit before, none;
    struct loop *loop;
    int status;

    assert_int_equal(loop_create(&loop), 0);
    template = template_create(loop, &plan, stop_loop, loop);
    assert_non_null(template);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    loop_run(loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(template_is_starting(template));
    (void)alarm(60); /* ends a test that waits for one that lives on */
    assert_true(__real_waitpid(-1, &status, 0) > 0);
    (void)alarm(0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    template_destroy(template);
    assert_int_equal(loop_destroy(loop), 0);
}

/* What the template runs in place of Python. */
static void hangs(void)
{
    for (;;)
        (void)pause();
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        hangs();
    return test_run(NULL, NULL);
}
