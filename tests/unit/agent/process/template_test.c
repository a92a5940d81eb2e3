/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a template that the kernel does not release. */
#include <stdlib.h>
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

static void one_that_hangs_in_the_kernel_is_not_waited_for(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_hangs_in_the_kernel_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
