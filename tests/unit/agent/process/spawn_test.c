/* SPDX-License-Identifier: Apache-2.0 */
/* All tests run twice: with what this kernel can do, and with clone3() refused, as a container's
 * filter does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/spawn.h"
#include "tests/lib/refuse_call.h"
#include "tests/lib/test.h"

enum {
    CROWD = 16
};

static char path[] = "PATH=/nowhere:/usr/bin:/bin";
static char *const env[] = {path, NULL};
static char seconds[] = "1000";
static char sleep_name[] = "sleep", true_name[] = "true";
static char missing_path[] = "./no-such-program", missing_name[] = "no-such-program";
static char *const sleeper[] = {sleep_name, seconds, NULL};
static char *const true_program[] = {true_name, NULL};
static char *const missing_there[] = {missing_path, NULL};
static char *const missing_in_path[] = {missing_name, NULL};

static struct spawn start(struct spawn_batch *batch, char *const *argv,
                          const struct bind *bind)
{
    const struct spawn_request request = {
        .argv = argv, .env = env, .out = -1, .err = -1, .bind = bind};
    struct spawn spawn;

    assert_int_equal(spawn_start(&spawn, batch, &request, NULL), 0);
    return spawn;
}

/* Starts a program that sleeps until end_sleeper() kills it. */
static struct spawn start_sleeper(void)
{
    struct spawn_batch batch = {.max = 1};
    const struct spawn spawn = start(&batch, sleeper, NULL);

    spawn_wait(&batch);
    assert_int_equal(spawn_check(&spawn, &batch, NULL), 0);
    spawn_end(&batch);
    return spawn;
}

static void end_sleeper(const struct spawn *spawn)
{
    int status;

    assert_int_equal(kill(spawn->pid, SIGKILL), 0);
    assert_int_equal(waitpid(spawn->pid, &status, 0), spawn->pid);
    assert_true(WIFSIGNALED(status));
}

static void assert_childless(void)
{
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
}

TEST(of_many_only_those_without_a_program_fail)
{
    struct spawn_batch batch = {.max = CROWD};
    struct spawn spawns[CROWD];

    for (int i = 0; i < CROWD; i++)
        spawns[i] = start(&batch,
                          i % 4 == 1   ? missing_there
                          : i % 4 == 3 ? missing_in_path
                                       : true_program,
                          NULL);
    spawn_wait(&batch);
    for (int i = 0; i < CROWD; i++) {
        struct ctrun_error err = {0};
        int status = -1;

        assert_int_equal(spawn_check(&spawns[i], &batch, &err), i % 2 ? -ENOENT : 0);
        if (i % 2) {
            assert_non_null(strstr(err.text, "no-such-program: No such file"));
            continue;
        }
        assert_int_equal(waitpid(spawns[i].pid, &status, 0), spawns[i].pid);
        assert_int_equal(status, 0);
    }
    spawn_end(&batch);
    assert_childless(); /* failed children are reaped */
}

TEST(cpus_that_do_not_exist_are_told_as_such)
{
    struct spawn_batch batch = {.max = 1};
    struct ctrun_error err = {0};
    struct bind bind = {.has_cpus = true};
    struct spawn spawn;

    cpuset_add(&bind.cpus, CPUSET_CPUS_MAX - 1);
    spawn = start(&batch, true_program, &bind);
    spawn_wait(&batch);
    assert_int_equal(spawn_check(&spawn, &batch, &err), -EINVAL);
    assert_non_null(strstr(err.text, "true: bind to CPUs: "));
    spawn_end(&batch);
    assert_childless();
}

/* Parent and child share errno until the child has its program. */
TEST(what_fails_in_a_child_leaves_our_errno_alone)
{
    struct spawn_batch batch = {.max = 1};
    struct spawn spawn;

    errno = ENOTTY;
    spawn = start(&batch, missing_in_path, NULL);
    spawn_wait(&batch);
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(spawn_check(&spawn, &batch, NULL), -ENOENT);
    spawn_end(&batch);
}

TEST(a_program_leads_a_session)
{
    const struct spawn spawn = start_sleeper();

    assert_int_equal(getsid(spawn.pid), spawn.pid);
    assert_int_equal(getpgid(spawn.pid), spawn.pid);
    end_sleeper(&spawn);
}

/* A set of signals from /proc/PID/status: bit 0 is signal 1. */
static uint64_t signals_of(pid_t pid, const char *key)
{
    char status[64];
    char line[256];
    char name[16];
    unsigned long long set = 0;
    FILE *file;

    (void)snprintf(status, sizeof status, "/proc/%d/status", (int)pid);
    assert_non_null(file = fopen(status, "re"));
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%15[A-Za-z]: %llx", name, &set) == 2 &&
            strcmp(name, key) == 0)
            break;
    (void)fclose(file);
    return set;
}

static uint64_t bit(int signal)
{
    return (uint64_t)1 << (signal - 1);
}

static void on_signal(int signal)
{
}

TEST(a_program_has_no_blocked_signal_and_none_of_our_handlers)
{
    struct spawn spawn;
    sigset_t mask, before;

    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    (void)sigprocmask(SIG_BLOCK, &mask, &before);
    (void)signal(SIGUSR1, on_signal);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    spawn = start_sleeper();
    assert_true(signals_of(getpid(), "SigBlk") & bit(SIGUSR2));
    assert_int_equal(signals_of(spawn.pid, "SigBlk"), 0);
    assert_int_equal(signals_of(spawn.pid, "SigCgt"), 0);
    assert_true(signals_of(spawn.pid, "SigIgn") & bit(SIGHUP)); /* nohup */
    assert_false(signals_of(spawn.pid, "SigIgn") & bit(SIGPIPE));
    end_sleeper(&spawn);
    /* our own handlers are unchanged */
    assert_true(signals_of(getpid(), "SigCgt") & bit(SIGUSR1));
    (void)signal(SIGUSR1, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

TEST(a_batch_that_nothing_was_started_of_ends)
{
    struct spawn_batch batch = {.max = CROWD};

    spawn_wait(&batch);
    spawn_end(&batch);
    spawn_end(&batch);
}

int main(void)
{
    int failed = test_run(NULL, NULL);

    if (refuse_call(SYS_clone3))
        failed += test_run(NULL, NULL);
    else
        printf("SKIPPED without clone3: this kernel has no filters\n");
    return failed;
}
