/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptors of a process are looked at to find who holds a file of /dev/shm. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/shm.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static char other[] = "/tmp/ctrun-shm-XXXXXX"; /* its file system may hang */
static bool is_followed;

int __real_fstatat(int dir, const char *name, struct stat *info, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *info, int flags);

int __wrap_fstatat(int dir, const char *name, struct stat *info, int flags)
{
    char target[sizeof other + 64] = "";

    if (readlinkat(dir, name, target, sizeof target - 1) > 0)
        is_followed |= strcmp(target, other) == 0;
    return __real_fstatat(dir, name, info, flags);
}

/* A file of an earlier tick of the clock would not count as made since then. */
static int make(const char *path, const struct timespec *since)
{
    struct stat info = {0};
    int fd = -1;

    while (info.st_ctim.tv_sec < since->tv_sec ||
           (info.st_ctim.tv_sec == since->tv_sec &&
            info.st_ctim.tv_nsec <= since->tv_nsec)) {
        if (fd >= 0)
            close(fd);
        (void)unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &info), 0);
    }
    return fd;
}

static void what_is_held_is_found_without_a_look_at_other_files(void **state)
{
    const int held = mkstemp(other);
    struct shm_watch watch;
    char path[64];
    pid_t child;
    int fd;

    assert_true(held >= 0);
    (void)ct_format(path, sizeof path, "/dev/shm/nccl-test-%d", (int)getpid());
    shm_watch_init(&watch);
    fd = make(path, &watch.since);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        for (;;)
            (void)pause();
    close(fd);
    shm_watch_look(&watch, false);
    assert_int_equal(watch.count, 1);
    assert_int_equal(shm_watch_remove(&watch), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(shm_watch_remove(&watch), 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_false(is_followed);
    shm_watch_deinit(&watch);
    close(held);
    assert_int_equal(unlink(other), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_is_found_without_a_look_at_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
