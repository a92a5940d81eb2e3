/* SPDX-License-Identifier: Apache-2.0 */
/* The text of ctrunctl stacks: which workers are read, and which are no more because the time is over. */
#include <string.h>
#include <time.h>

#include "agent/loop/blocking_call.h"
#include "agent/node/agent_private.h"
#include "agent/watch/live_stack.h"
#include "agent/worker/worker.h"
#include "tests/lib/test.h"

enum {
    WORKERS = 4,
    LIMIT_MS = 800,
    LAST_MS = LIMIT_MS / STACKS_LAST_PARTS /* no stack is begun in this time */
};

static struct agent agent;
static struct worker workers[WORKERS];
static uint64_t now_ms, each_ms; /* that a stack takes */
static struct ct_buf text;

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_worker_group_count(const struct worker_group *group);
const struct worker *__wrap_worker_group_worker(const struct worker_group *group,
                                                int i);
int __wrap_blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                            void (*free_job)(void *job), void *job,
                            uint64_t timeout_ms);
int __wrap_live_stack_write(struct ct_buf *out, int rank, pid_t pid,
                            struct live_room *room);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    *out = (struct timespec){.tv_sec = (time_t)(now_ms / 1000),
                             .tv_nsec = (long)(now_ms % 1000 * 1000000)};
    return 0;
}

int __wrap_worker_group_count(const struct worker_group *group)
{
    return WORKERS;
}

const struct worker *__wrap_worker_group_worker(const struct worker_group *group, int i)
{
    return &workers[i];
}

int __wrap_blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                            void (*free_job)(void *job), void *job, uint64_t timeout_ms)
{
    assert_int_equal(timeout_ms, LIMIT_MS);
    fn(job);
    return 0;
}

int __wrap_live_stack_write(struct ct_buf *out, int rank, pid_t pid,
                            struct live_room *room)
{
    assert_int_equal(pid, 100 + rank);
    now_ms += each_ms;
    return ct_buf_printf(out, "rank %d: its stack\n", rank);
}

static int begin(void **state)
{
    for (int i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){.state = i == 1 ? WORKER_ENDED : WORKER_RUNNING,
                                     .pid = 104 + i,
                                     .rank = 4 + i};
    now_ms = 70000;
    ct_buf_init(&text, STACKS_TEXT_MAX_BYTES);
    return 0;
}

static int end(void **state)
{
    ct_buf_deinit(&text);
    return 0;
}

static void check(int rank, int count, const char *expected)
{
    struct ctrun_error err;

    assert_int_equal(agent_write_stacks(&agent, rank, LIMIT_MS, &text, &err), count);
    assert_int_equal(ct_buf_append(&text, "", 1), 0);
    assert_string_equal(ct_buf_data(&text), expected);
}

#define STACKS_TEST(name) TEST_AROUND(name, begin, end)

STACKS_TEST(in_time_all_that_run_are_read)
{
    each_ms = (LIMIT_MS - LAST_MS) / WORKERS;
    check(-1, 3, "rank 4: its stack\nrank 6: its stack\nrank 7: its stack\n");
}

STACKS_TEST(once_the_time_is_over_the_others_are_said_not_to_be_read)
{
    each_ms = LIMIT_MS - LAST_MS - 1; /* another one begins just in time */
    check(-1, 3,
          "rank 4: its stack\nrank 6: its stack\n"
          "rank 7: no time was left to read it\n");
}

STACKS_TEST(what_is_kept_for_the_last_one_begins_none)
{
    each_ms = LIMIT_MS - LAST_MS;
    check(-1, 3,
          "rank 4: its stack\nrank 6: no time was left to read it\n"
          "rank 7: no time was left to read it\n");
}

STACKS_TEST(one_rank_is_read_alone)
{
    each_ms = 0;
    check(6, 1, "rank 6: its stack\n");
}

STACKS_TEST(a_rank_that_does_not_run_is_none)
{
    check(5, 0, "");
}
