/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptors of a process are looked at to find who holds a file of /dev/shm, and a process whose memory map
 * cannot be read for now. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/process/shm.h"
#include "tests/lib/test.h"
#include "tests/lib/threads.h"
#include "worker_sdk/base/clock.h"
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

/* Time is over at once where a map is locked and nobody would unlock it; else it is never over. */
static bool is_over, unlocks;
static uint64_t latest_ms; /* deadline of the waits that were over */
static uint64_t limit_ms;  /* the last one */

static void unlock_map(void);
bool __real_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms);
bool __wrap_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms);

bool __wrap_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms)
{
    if (is_over) {
        if (deadline_ms > latest_ms)
            latest_ms = deadline_ms;
        return false;
    }
    if (unlocks)
        unlock_map();
    unlocks = false;
    return __real_ct_cond_wait(cond, mutex, UINT64_MAX);
}

uint64_t __real_ct_deadline_ms(uint64_t timeout_ms);
uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms);

uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms)
{
    limit_ms = timeout_ms;
    return __real_ct_deadline_ms(timeout_ms);
}

static bool is_at_limit; /* of threads */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument)
{
    return is_at_limit ? EAGAIN : __real_pthread_create(thread, attr, fn, argument);
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

static void note(struct shm_watch *watch)
{
    shm_watch_look(watch, false);
    assert_int_equal(watch->count, 1);
}

static void kill_holder(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void remove_file(struct shm_watch *watch, const char *path)
{
    assert_int_equal(shm_watch_remove(watch, UINT64_MAX), 1);
    assert_int_equal(access(path, F_OK), -1);
    shm_watch_deinit(watch);
}

TEST(what_is_held_is_found_without_a_look_at_other_files)
{
    const int held = mkstemp(other);
    struct shm_watch watch;
    char path[64];
    pid_t child;

    assert_true(held >= 0);
    child = start_holder(&watch, path);
    note(&watch);
    assert_int_equal(shm_watch_remove(&watch, UINT64_MAX), 0);
    kill_holder(child);
    remove_file(&watch, path);
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

static void find_nothing_in_time(struct shm_watch *watch)
{
    is_over = true;
    shm_watch_look(watch, false);
    is_over = false;
    assert_int_equal(watch->count, 0);
}

/* A thread of a worker holds it while it waits for a file system that hangs. The next look may begin before the one
 * that was waited for has ended: it is left out then. */
TEST(a_memory_map_that_cannot_be_read_is_not_waited_for)
{
    struct shm_watch watch;
    struct blocking_file file = {.path = "/dev/shm"};
    char path[64];
    const pid_t child = start_holder(&watch, path);
    int threads;

    lock_map_of(child);
    find_nothing_in_time(&watch);
    threads = test_count_threads();
    find_nothing_in_time(&watch);
    assert_true(test_count_threads() <= threads);
    blocking_call_find_files(&file, 1, 20000);
    assert_true(file.is_there);
    unlock_map();
    while (watch.count == 0)
        shm_watch_look(&watch, false);
    assert_int_equal(watch.count, 1);
    close(lock[0]);
    kill_holder(child);
    remove_file(&watch, path);
}

TEST(a_removal_has_more_time_and_waits_for_an_earlier_one)
{
    struct shm_watch watch;
    char path[64];
    const pid_t child = start_holder(&watch, path);
    uint64_t begin_ms;

    note(&watch);
    lock_map_of(child);
    begin_ms = ct_now_ms();
    is_over = true;
    assert_int_equal(shm_watch_remove(&watch, UINT64_MAX), 0);
    is_over = false;
    assert_int_equal(watch.count, 1); /* it may still be held */
    assert_true(latest_ms >= begin_ms + SHM_REMOVE_MS);
    kill_holder(child);
    unlocks = true;
    remove_file(&watch, path);
    assert_false(unlocks);
    close(lock[0]);
}

TEST(a_removal_ends_before_the_lease)
{
    struct shm_watch watch;
    char path[64];
    const pid_t child = start_holder(&watch, path);

    note(&watch);
    lock_map_of(child);
    latest_ms = 0;
    is_over = true;
    assert_int_equal(shm_watch_remove(&watch, ct_now_ms() + SHM_REMOVE_MS), 0);
    is_over = false;
    assert_true(latest_ms > 0 && limit_ms <= SHM_REMOVE_MS / 3 * 2);
    kill_holder(child);
    unlocks = true;
    remove_file(&watch, path);
    close(lock[0]);
}

/* Without one, nothing would limit the time that a memory map takes. */
TEST(nothing_is_removed_without_a_thread)
{
    struct shm_watch watch;
    char path[64];
    const pid_t child = start_holder(&watch, path);

    note(&watch);
    kill_holder(child);
    is_at_limit = true;
    assert_int_equal(shm_watch_remove(&watch, UINT64_MAX), 0);
    is_at_limit = false;
    assert_int_equal(watch.count, 1);
    remove_file(&watch, path);
}

int main(void)
{
    (void)alarm(60); /* ends a test that waits */
    return test_run(NULL, NULL);
}
