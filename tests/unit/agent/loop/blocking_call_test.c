/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls that return late, and searches for files. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

static int threads;
static bool is_at_limit; /* of threads */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *argument)
{
    threads++;
    if (is_at_limit)
        return EAGAIN;
    return __real_pthread_create(thread, attr, fn, argument);
}

TEST(files_are_looked_for_in_one_thread)
{
    char there[] = "/tmp/ctrun-look-XXXXXX";
    const int fd = mkstemp(there);
    const uint64_t now_ns = ct_wall_ns();
    struct blocking_file files[3] = {{.path = there}, {0}, {.path = "/tmp/nobody/x"}};

    assert_true(fd >= 0);
    blocking_call_find_files(files, 3, 60000);
    assert_int_equal(threads, 1);
    assert_true(files[0].is_there && !files[1].is_there && !files[2].is_there);
    assert_true(files[0].written_ns == 0 || now_ns - files[0].written_ns < 60000000000);
    assert_int_equal(files[2].written_ns, 0);
    close(fd);
    unlink(there);
}

TEST(without_memory_no_file_is_there)
{
    struct blocking_file files[2] = {{.path = "/", .is_there = true},
                                     {.path = "/", .is_there = true}};

    for (size_t n = 1; n <= 3; n++) {
        ct_alloc_fail_at(n);
        blocking_call_find_files(files, 2, 60000);
        assert_false(files[0].is_there || files[1].is_there);
    }
    ct_alloc_fail_at(0);
    blocking_call_find_files(files, 2, 60000);
    assert_true(files[0].is_there && files[1].is_there);
}

static void count(void *job)
{
    *(int *)job += 1;
}

static void free_counter(void *job)
{
    free(job);
}

TEST(without_a_thread_a_call_is_made_here_unless_its_lane_needs_one)
{
    static struct blocking_lane lane, threaded = {.needs_thread = true};
    int *counter = ct_zalloc(sizeof *counter);

    assert_non_null(counter);
    is_at_limit = true;
    assert_int_equal(blocking_call_in(&lane, count, free_counter, counter, 60000), 0);
    assert_int_equal(*counter, 1);
    assert_int_equal(blocking_call_in(&threaded, count, free_counter, counter, 60000),
                     -EAGAIN);
    is_at_limit = false;
}

static sem_t is_answered; /* a file system that hung answers again */

static void hang(void *job)
{
    assert_int_equal(sem_wait(&is_answered), 0);
}

static void answer(void *job)
{
    *(int *)job += 1;
    assert_int_equal(sem_post(&is_answered), 0);
}

static void *answer_elsewhere(void *job)
{
    answer(job);
    return NULL;
}

/* A call with a short limit that is late does not end the next call, which has a longer limit. */
TEST(a_call_waits_for_one_that_is_out_as_long_as_for_itself)
{
    int *calls = ct_zalloc(sizeof *calls);
    pthread_t file_system;

    assert_int_equal(sem_init(&is_answered, 0, 0), 0);
    assert_int_equal(blocking_call(hang, free, ct_zalloc(1), 0), -ETIMEDOUT);
    assert_int_equal(blocking_call(hang, free, ct_zalloc(1), 0), -ETIMEDOUT);
    assert_int_equal(pthread_create(&file_system, NULL, answer_elsewhere, calls), 0);
    assert_int_equal(blocking_call(answer, free, calls, 60000), 0);
    pthread_join(file_system, NULL);
    assert_int_equal(*calls, 2);
    free(calls);
}
