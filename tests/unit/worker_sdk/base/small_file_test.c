/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process has ended. A wrong "yes" would kill a live one. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/small_file.h"

TEST(a_process_is_known_by_pid_and_start)
{
    const uint64_t started = ct_small_file_started(getpid());

    assert_true(started > 0);
    assert_false(ct_small_file_has_ended(getpid(), started));
    /* The pid was used again. */
    assert_true(ct_small_file_has_ended(getpid(), started + 1));
}

TEST(a_process_that_was_reaped_has_ended)
{
    const pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ct_small_file_has_ended(pid, 1));
}

/* Without a free descriptor no file in /proc can be read. */
TEST(a_process_of_which_nothing_can_be_read_has_not_ended)
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

TEST(a_label_counts_only_where_a_line_begins)
{
    assert_string_equal(ct_small_file_find("a: b: 1\n\nb: 2\nb: 3", "b:"), " 2\nb: 3");
    assert_string_equal(ct_small_file_find("a: 1", "a:"), " 1");
    assert_null(ct_small_file_find("a: b: 1\n", "b:"));
    assert_null(ct_small_file_find("", "b:"));
}

TEST(what_is_behind_a_name_begins_with_the_state_whatever_the_name_is)
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

TEST(who_runs_waits_in_no_function)
{
    char wait[64] = "?";

    ct_small_file_wait(wait, sizeof wait, getpid(), getpid());
    assert_string_equal(wait, "");
}

static pid_t start_child(void)
{
    const pid_t pid = fork();

    if (pid == 0)
        for (;;)
            (void)pause();
    return pid;
}

struct starter {
    pid_t child;
    int wait[2]; /* the thread lives until the second one is closed */
    pthread_barrier_t has_started;
};

static void *start_in_thread(void *context)
{
    struct starter *starter = context;
    char byte;

    starter->child = start_child();
    (void)pthread_barrier_wait(&starter->has_started);
    (void)!read(starter->wait[0], &byte, 1);
    return NULL;
}

TEST(children_of_all_threads_are_found)
{
    struct starter starter;
    pid_t mine, found[3];
    pthread_t thread;
    int count;

    if (access("/proc/thread-self/children", R_OK) < 0)
        skip(); /* CONFIG_PROC_CHILDREN */
    mine = start_child();
    assert_int_equal(ct_small_file_children(found, 3, getpid()), 1);
    assert_int_equal(pipe2(starter.wait, O_CLOEXEC), 0);
    assert_int_equal(pthread_barrier_init(&starter.has_started, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, start_in_thread, &starter), 0);
    (void)pthread_barrier_wait(&starter.has_started);
    count = ct_small_file_children(found, 3, getpid());
    assert_int_equal(ct_small_file_children(found + 2, 1, getpid()), 1);
    assert_int_equal(kill(mine, SIGKILL), 0);
    assert_int_equal(kill(starter.child, SIGKILL), 0);
    close(starter.wait[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waitpid(mine, NULL, 0), mine);
    assert_int_equal(waitpid(starter.child, NULL, 0), starter.child);
    assert_int_equal(count, 2);
    assert_int_equal(found[0] + found[1], mine + starter.child);
    assert_int_equal(ct_small_file_children(found, 3, mine), 0);
    (void)pthread_barrier_destroy(&starter.has_started);
    close(starter.wait[0]);
}
