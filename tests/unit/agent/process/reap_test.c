/* SPDX-License-Identifier: Apache-2.0 */
/* The walk through /proc after pids have started again at the lowest. */
#include "tests/lib/test.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/reap.h"
#include "worker_sdk/base/small_file.h"

static void wait_forever(void)
{
    for (;;)
        (void)pause();
}

/* A child with the next lower free pid. Returns its pid or a negative errno. */
static pid_t fork_below(void)
{
    for (pid_t pid = getpid() - 1; pid > 1; pid--) {
        struct clone_args args = {.exit_signal = SIGCHLD,
                                  .set_tid = (uint64_t)(uintptr_t)&pid,
                                  .set_tid_size = 1};
        const long rc = syscall(SYS_clone3, &args, sizeof args);

        if (rc == 0)
            wait_forever();
        if (rc > 0 || errno != EEXIST)
            return rc > 0 ? (pid_t)rc : -errno;
    }
    return -EAGAIN;
}

struct seen {
    pid_t parent, child;
    int parents, children, others;
};

static void visit(void *context, const struct reap_process *process)
{
    struct seen *seen = context;

    seen->parents += process->pid == seen->parent;
    seen->children += process->pid == seen->child && process->parent == seen->parent;
    seen->others += process->pid != seen->parent && process->pid != seen->child;
}

TEST(a_child_with_a_lower_pid_than_its_parent_is_visited_once)
{
    struct seen seen = {0};
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_true((seen.parent = fork()) >= 0);
    if (seen.parent == 0) {
        const pid_t child = fork_below();

        (void)!write(ends[1], &child, sizeof child);
        wait_forever();
    }
    assert_int_equal(read(ends[0], &seen.child, sizeof seen.child), sizeof seen.child);
    if (seen.child > 0)
        assert_int_equal(reap_scan(NULL, visit, &seen), 2);
    (void)kill(seen.parent, SIGKILL);
    (void)waitpid(seen.parent, NULL, 0);
    if (seen.child > 0)
        (void)kill(seen.child, SIGKILL);
    close(ends[0]);
    close(ends[1]);
    if (seen.child == -EPERM || seen.child == -ENOSYS || seen.child == -EINVAL)
        skip(); /* this system lets us choose no pid */
    assert_true(seen.child > 0 && seen.child < seen.parent);
    assert_true(seen.parents == 1 && seen.children == 1 && seen.others == 0);
}

TEST(a_process_that_has_the_pid_of_another_one_is_not_killed)
{
    struct reap_process process;
    const pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        wait_forever();
    assert_true(reap_look(pid, &process));
    assert_int_equal(process.started, ct_small_file_started(pid));
    process.started--; /* the one before */
    reap_kill(&process);
    process.started++;
    assert_true(reap_look(pid, &process));
    reap_kill(&process);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    reap_kill(&process); /* gone */
}
