/* SPDX-License-Identifier: Apache-2.0 */
/* Restarts of the earlier starts of a requeued job, from what these have left below the log folder. */
#include "launcher/report/earlier_starts.h"

#include <dirent.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

enum {
    LIMIT_MS = 20 /* in place of the real one, for a folder that hangs */
};

static char base[] = "/tmp/ctrun-starts-XXXXXX";
static bool hangs; /* the log folder, until goes_on is posted */
static sem_t goes_on, is_freed;
static void (*free_search)(void *job);

DIR *__real_opendir(const char *name);
DIR *__wrap_opendir(const char *name);
int __real_blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                            void (*free_job)(void *job), void *job,
                            uint64_t timeout_ms);
int __wrap_blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                            void (*free_job)(void *job), void *job,
                            uint64_t timeout_ms);

DIR *__wrap_opendir(const char *name)
{
    if (hangs)
        assert_int_equal(sem_wait(&goes_on), 0);
    return __real_opendir(name);
}

static void free_late(void *job)
{
    free_search(job);
    (void)sem_post(&is_freed);
}

int __wrap_blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                            void (*free_job)(void *job), void *job, uint64_t timeout_ms)
{
    assert_true(timeout_ms > 0 && timeout_ms <= 5000); /* the run waits for it */
    free_search = free_job;
    return __real_blocking_call_in(lane, fn, free_late, job,
                                   hangs ? LIMIT_MS : timeout_ms);
}

static int begin(void **state)
{
    memcpy(base + sizeof base - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int end(void **state)
{
    return test_remove_tree(base);
}

#define STARTS_TEST(name) TEST_AROUND(name, begin, end)

/* The file of a node of start `requeues` (0: the first) of the job. */
static void leave(const char *folder, const char *task, unsigned requeues,
                  unsigned restarts, unsigned unknown)
{
    char text[512];

    assert_true(ct_format(text, sizeof text,
                          "{\"batch_task\": \"%s\", \"requeues\": %u, "
                          "\"total_restarts\": %u, \"unknown_starts\": %u}",
                          task, requeues, restarts, unknown) > 0);
    test_put_under(base, text, "%s/summary.json", folder);
}

static void check(unsigned requeues, uint64_t restarts, uint32_t unknown)
{
    struct job_starts found;
    char task[64];

    (void)ct_format(task, sizeof task, "slurm-41.0.%u", requeues);
    earlier_starts_find(
        &found, &(struct earlier_starts_of){
                    .base = base, .task = task, .run_id = task, .requeues = requeues});
    assert_int_equal(found.requeues, requeues);
    assert_int_equal(found.restarts, restarts);
    assert_int_equal(found.unknown, unknown);
}

/* ---- Several nodes --------------------------------------------------------------------------- */

STARTS_TEST(of_the_nodes_of_a_start_the_one_that_has_seen_most_counts)
{
    leave("slurm-41.0.1_a", "slurm-41.0.1", 1, 3, 0);
    leave("slurm-41.0.1_b", "slurm-41.0.1", 1, 5, 0);
    leave("slurm-41.0.1_c", "slurm-41.0.1", 1, 4, 0); /* left the run earlier */
    check(2, 5, 0);
}

STARTS_TEST(the_newest_start_counts_whatever_an_older_one_has_seen)
{
    leave("slurm-41.0_a", "slurm-41.0", 0, 90, 0);
    leave("slurm-41.0.2_a", "slurm-41.0.2", 2, 2, 1);
    leave("slurm-41.0.2_b", "slurm-41.0.2", 2, 7, 1);
    leave("slurm-41.0.1_a", "slurm-41.0.1", 1, 80, 0);
    check(5, 7, 3); /* one before it, and two since */
}

STARTS_TEST(this_start_later_ones_and_other_jobs_do_not_count)
{
    leave("slurm-41.0_a", "slurm-41.0", 0, 1, 0);
    leave("slurm-41.0.2_a", "slurm-41.0.2", 2, 9, 0);
    leave("slurm-41.0.3_a", "slurm-41.0.3", 3, 9, 0);
    leave("slurm-41.0.1_a", "slurm-410.1", 1, 9, 0);
    leave("slurm-41.0.1_b", "slurm-41.0.0", 1, 9, 0);
    leave("slurm-4.0_a", "slurm-4.0", 0, 9, 0);
    check(2, 1, 1);
}

/* ---- What cannot be read --------------------------------------------------------------------- */

STARTS_TEST(a_broken_file_is_none_and_the_others_count)
{
    static const char *const broken[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"batch_task\": 41, \"requeues\": 2}",
        ("{\"batch_task\": \"slurm-41.0.2\", \"requeues\": \"many\", "
         "\"total_restarts\": 9}"),
        "{\"batch_task\": \"slurm-41.0.2\", \"requeues\": -2, \"total_restarts\": 9}"};
    char path[128];

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        test_put_under(base, broken[i], "slurm-41.0.2_%zu/summary.json", i);
    test_put_under(base, "", "slurm-41.0.2_x/summary.json/a_folder");
    test_put_under(base, "no folder", "slurm-41.0.2_y");
    test_put_under(base, "", "slurm-41.0.2_z/other");
    (void)ct_format(path, sizeof path, "%s/slurm-41.0.2_z/summary.json", base);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes into it */
    check(3, 0, 3);
    leave("slurm-41.0.1_a", "slurm-41.0.1", 1, 6, 0);
    check(3, 6, 1);
}

STARTS_TEST(without_a_log_folder_no_start_is_known)
{
    struct job_starts found;

    check(2, 0, 2);
    earlier_starts_find(&found, &(struct earlier_starts_of){.base = "/nonexistent",
                                                            .task = "slurm-41.0.2",
                                                            .run_id = "mine",
                                                            .requeues = 2});
    assert_int_equal(found.unknown, 2);
    earlier_starts_find(&found, &(struct earlier_starts_of){.task = "slurm-41.0.2",
                                                            .run_id = "mine",
                                                            .requeues = 2});
    assert_int_equal(found.unknown, 2);
}

STARTS_TEST(a_log_folder_that_hangs_is_left_alone_and_no_start_is_known)
{
    assert_int_equal(sem_init(&goes_on, 0, 0), 0);
    assert_int_equal(sem_init(&is_freed, 0, 0), 0);
    leave("slurm-41.0.1_a", "slurm-41.0.1", 1, 6, 0);
    hangs = true;
    check(2, 0, 2);
    (void)sem_post(&goes_on);
    assert_int_equal(sem_wait(&is_freed), 0);
    hangs = false;
    check(2, 6, 0); /* it answers again */
}
