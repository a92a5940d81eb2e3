/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptors of a process are looked at to find who holds a file of /dev/shm, and a process whose memory map
 * cannot be read for now. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

static atomic_int
    locked; /* its memory map can be read once the other end of `lock` is closed; 0: none */
static int lock[2];

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    char map[64], byte;

    (void)ct_format(map, sizeof map, "/proc/%d/maps", (int)locked);
    if (strcmp(path, map) == 0)
        (void)!read(lock[0], &byte, 1);
    return __real_fopen(path, mode);
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

/* A child that holds a new file of this process. */
static pid_t start_holder(struct shm_watch *watch, char path[64])
{
    pid_t child;
    int fd;

    (void)ct_format(path, 64, "/dev/shm/nccl-test-%d", (int)getpid());
    shm_watch_init(watch);
    fd = make(path, &watch->since);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    close(fd);
    return child;
}

/* A look that takes too long notes nothing. */
static void note(struct shm_watch *watch)
{
    while (watch->count == 0)
        shm_watch_look(watch, false);
    assert_int_equal(watch->count, 1);
}

static void end(pid_t child, struct shm_watch *watch, const char *path)
{
    int removed;

    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    while ((removed = shm_watch_remove(watch)) == 0)
        ;
    assert_int_equal(removed, 1);
    assert_int_equal(access(path, F_OK), -1);
    shm_watch_deinit(watch);
}

static void what_is_held_is_found_without_a_look_at_other_files(void **state)
{
    const int held = mkstemp(other);
    struct shm_watch watch;
    char path[64];
    pid_t child;

    assert_true(held >= 0);
    child = start_holder(&watch, path);
    note(&watch);
    assert_int_equal(shm_watch_remove(&watch), 0);
    end(child, &watch, path);
    assert_false(is_followed);
    close(held);
    assert_int_equal(unlink(other), 0);
}

static void lock_map_of(pid_t child)
{
    assert_int_equal(pipe(lock), 0);
    locked = child;
}

static void unlock_map(void)
{
    locked = 0;
    close(lock[1]);
}

/* A thread of a worker holds it while it waits for a file system that hangs. */
static void a_memory_map_that_cannot_be_read_is_not_waited_for(void **state)
{
    struct shm_watch watch;
    char path[64];
    const pid_t child = start_holder(&watch, path);

    lock_map_of(child);
    shm_watch_look(&watch, false);
    assert_int_equal(watch.count, 0);
    unlock_map();
    note(&watch);
    close(lock[0]);
    lock_map_of(child);
    assert_int_equal(shm_watch_remove(&watch), 0);
    assert_int_equal(watch.count, 1); /* it may still be held */
    unlock_map();
    end(child, &watch, path);
    close(lock[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_is_found_without_a_look_at_other_files),
        cmocka_unit_test(a_memory_map_that_cannot_be_read_is_not_waited_for),
    };

    (void)alarm(60); /* ends a test that waits */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
