/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about a process that does not end, or does not go on. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/postmortem/unkillable.h"
#include "agent/process/reap.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

enum {
    STACK_BYTES = 16384,
    DEADLINE_MS = 60000
};

/* Ends with the process that it makes wait. */
static int pause_for_good(void *parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == *(pid_t *)parent)
        pause();
    return 0;
}

/* A process with a file of the name of a GPU open, in state S, or D: so the kernel shows one that waits for the
 * process that it made as vfork() does. */
static void wait_in_child(bool is_uninterruptible)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    pid_t self = getpid();

    if (open("/dev/nvidia7", O_RDWR | O_CREAT, 0600) < 0)
        _exit(1);
    if (is_uninterruptible)
        (void)clone(pause_for_good, stack + STACK_BYTES,
                    CLONE_VM | CLONE_VFORK | SIGCHLD, &self);
    for (;;)
        pause();
}

static pid_t start(bool is_uninterruptible)
{
    struct reap_process process = {.state = '?'};
    const char want = is_uninterruptible ? 'D' : 'S';
    const uint64_t end_ms = ct_deadline_ms(DEADLINE_MS);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        wait_in_child(is_uninterruptible);
    while (reap_look(pid, &process) && process.state != want && ct_left_ms(end_ms) > 0)
        sched_yield();
    assert_int_equal(process.state, want);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(a_gpu_is_named_where_it_matters)
{
    char text[UNKILLABLE_WHERE_MAX];
    pid_t pid;

    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/dev", "tmpfs", 0, NULL) < 0) {
        print_message("skipped: no mount namespace of its own\n");
        skip();
    }
    pid = start(false);
    unkillable_describe(text, pid);
    assert_non_null(strstr(text, "state S"));
    assert_non_null(strstr(text, "; holds /dev/nvidia7"));
    unkillable_describe_stuck(text, pid);
    assert_non_null(strstr(text, "state S"));
    assert_null(strstr(text, "nvidia"));
    end(pid);
    pid = start(true);
    unkillable_describe_stuck(text, pid);
    assert_non_null(strstr(text, "state D"));
    assert_non_null(strstr(text, "; holds /dev/nvidia7"));
    end(pid);
}
