/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/worker/worker.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/small_file.h"

/* A child in a group of its own that ends so, and is not reaped yet. */
static struct worker dead_child(int code, int signal)
{
    struct worker worker = {.state = WORKER_RUNNING, .pid = fork()};
    siginfo_t info;

    if (worker.pid == 0) {
        (void)setpgid(0, 0);
        if (signal)
            (void)raise(signal);
        _exit(code);
    }
    assert_true(worker.pid > 0);
    assert_int_equal(waitid(P_PID, (id_t)worker.pid, &info, WEXITED | WNOWAIT), 0);
    return worker;
}

static void assert_stop_signal(struct worker worker, int signal, int expected)
{
    worker_signal(&worker, signal);
    assert_int_equal(worker.stop_signal, expected);
    assert_int_equal(waitpid(worker.pid, NULL, 0), worker.pid);
}

TEST(who_has_ended_by_itself_is_not_stopped_by_us)
{
    assert_stop_signal(dead_child(3, 0), SIGTERM, 0);
    assert_stop_signal(dead_child(0, SIGKILL), SIGTERM, 0);
}

static void end_with_1(int signal)
{
    (void)signal;
    _exit(1);
}

/* A batch system signals all processes of a job. */
TEST(who_was_ended_by_a_handler_of_the_same_signal_counts_as_stopped)
{
    struct worker worker = {.state = WORKER_RUNNING, .pid = fork()};
    siginfo_t info;

    if (worker.pid == 0) {
        (void)setpgid(0, 0);
        (void)signal(SIGTERM, end_with_1);
        (void)raise(SIGTERM);
    }
    assert_int_equal(waitid(P_PID, (id_t)worker.pid, &info, WEXITED | WNOWAIT), 0);
    assert_stop_signal(worker, SIGTERM, SIGTERM);
}

/* A batch system signals all processes of a job. */
TEST(who_died_of_the_same_signal_counts_as_stopped)
{
    assert_stop_signal(dead_child(0, SIGTERM), SIGTERM, SIGTERM);
}

/* Until that child waits in that system call: before, a sanitizer may block signals in it. */
static void await_call(pid_t pid, long number)
{
    char call[32] = "";

    while (strtol(call, NULL, 10) != number) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        assert_true(ct_small_file_of(call, sizeof call, pid, 0, "syscall") > 0);
    }
}

TEST(who_lives_is_stopped_and_its_handler_is_noted)
{
    struct worker worker = {.state = WORKER_RUNNING, .pid = fork()};
    sigset_t none;

    sigemptyset(&none);
    if (worker.pid == 0)
        for (;;)
            (void)sigsuspend(&none);
    assert_int_equal(setpgid(worker.pid, worker.pid), 0);
    await_call(worker.pid, SYS_rt_sigsuspend);
    worker_signal(&worker, SIGTERM);
    assert_true(worker.has_no_handler);
    assert_int_equal(worker.stop_signal, SIGTERM);
    assert_int_equal(waitpid(worker.pid, NULL, 0), worker.pid);
}

/* As ctrun, tini and others do. */
TEST(who_waits_for_the_signal_has_a_handler)
{
    struct worker worker = {.state = WORKER_RUNNING, .pid = fork()};
    sigset_t set;
    int got;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (worker.pid == 0) {
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        _exit(sigwait(&set, &got) == 0 ? 143 : 1);
    }
    assert_int_equal(setpgid(worker.pid, worker.pid), 0);
    await_call(worker.pid, SYS_rt_sigtimedwait);
    worker_signal(&worker, SIGTERM);
    assert_false(worker.has_no_handler);
    assert_int_equal(waitpid(worker.pid, NULL, 0), worker.pid);
}
