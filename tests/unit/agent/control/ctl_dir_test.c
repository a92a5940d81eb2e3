/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/test.h"

/* The state of an agent between bind() and listen(). */
static void begin(int dir, char hidden[CTL_DIR_NAME_MAX + 1], pid_t pid)
{
    char name[CTL_DIR_NAME_MAX];

    ctl_dir_own_name(name, "job", CTL_SOCKET_SUFFIX);
    if (pid)
        ctl_dir_name(name, "job", pid, strchr(strrchr(name, '-'), '.'));
    (void)snprintf(hidden, CTL_DIR_NAME_MAX + 1, ".%s", name);
    close(openat(dir, hidden, O_CREAT | O_EXCL | O_RDWR, 0600));
}

TEST(what_a_killed_agent_had_begun_is_swept_up)
{
    char path[] = "/tmp/ctrun-remote-dir-XXXXXX";
    char mine[CTL_DIR_NAME_MAX + 1], dead[CTL_DIR_NAME_MAX + 1];
    struct ctrun_error err;
    pid_t pid = fork();
    int dir;

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_non_null(mkdtemp(path));
    dir = ctl_dir_open(path, true, &err);
    assert_true(dir >= 0);
    begin(dir, mine, 0);
    begin(dir, dead, pid);
    ctl_dir_sweep(dir, CTL_WORKER_SUFFIX, 1);
    assert_int_equal(faccessat(dir, dead, F_OK, 0), 0);
    ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, 1);
    assert_int_equal(faccessat(dir, dead, F_OK, 0), -1);
    assert_int_equal(unlinkat(dir, mine, 0), 0);
    close(dir);
    assert_int_equal(rmdir(path), 0);
}

TEST(tasks_that_were_killed_while_they_met_are_swept_up)
{
    static const char *const names[] = {"old-0.merge", ".old-1.merge", "new-0.merge",
                                        ".new-1.merge"};
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 3700},
                                    {.tv_sec = time(NULL) - 3700}};
    char path[] = "/tmp/ctrun-remote-dir-XXXXXX";
    struct ctrun_error err;
    int dir;

    assert_non_null(mkdtemp(path));
    dir = ctl_dir_open(path, true, &err);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mknodat(dir, names[i], S_IFSOCK | 0600, 0), 0);
        assert_true(i >= 2 || utimensat(dir, names[i], old, 0) == 0);
    }
    ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(unlinkat(dir, names[i], 0), i < 2 ? -1 : 0);
    close(dir);
    assert_int_equal(rmdir(path), 0);
}

/* Task 0 of a node listens at RUN-NODE.merge: a task that was refused there by the name of an earlier
 * job must not remove the new one. */
TEST(who_is_refused_removes_no_name_that_another_may_have_taken)
{
    char path[] = "/tmp/ctrun-remote-dir-XXXXXX";
    static const char name[] = "job-0.merge";
    struct ctrun_error err;
    int dir, fd;

    assert_non_null(mkdtemp(path));
    dir = ctl_dir_open(path, true, &err);
    fd = ctl_dir_listen(dir, name, SOCK_SEQPACKET);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ctl_dir_connect(dir, name, SOCK_SEQPACKET), -ECONNREFUSED);
    assert_int_equal(unlinkat(dir, name, 0), 0);
    close(dir);
    assert_int_equal(rmdir(path), 0);
}

/* An agent of a login session has its socket in the session's folder; the caller may have no session. */
TEST(a_run_of_a_login_session_is_found_without_its_environment)
{
    char paths[CTL_DIRS_MAX][PATH_MAX], in_session[64];

    (void)snprintf(in_session, sizeof in_session, "/run/user/%u/ctrun",
                   (unsigned)getuid());
    assert_int_equal(unsetenv(CTL_DIR_ENV), 0);
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_true(ctl_dir_list(paths, getuid()) >= 2);
    assert_string_equal(paths[0], in_session);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/tmp/x", 1), 0);
    assert_true(ctl_dir_list(paths, getuid()) >= 2);
    assert_string_equal(paths[0], "/tmp/x/ctrun");
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
}
