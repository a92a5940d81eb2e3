/* SPDX-License-Identifier: Apache-2.0 */
/* The look at the other ranks after a collective timed out: which of them are named, and when it ends. */
#include <signal.h>
#include <time.h>

#include "agent/guard/fence.h"
#include "agent/loop/blocking_call.h"
#include "agent/node/agent_private.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/watch/live_state.h"
#include "agent/worker/worker.h"
#include "tests/lib/facts_text.h"
#include "tests/lib/test.h"

enum {
    WORKERS = 3,
    FIRST = 8, /* global rank of the first worker */
    NOW_MS = 50000
};

static struct agent agent;
static struct agent_options options;
static struct worker workers[WORKERS];
static struct ct_failure failure, own;
static const char *places[WORKERS];
static bool meets[WORKERS]; /* in a call of torch.distributed */
static const char *stacks;
static uint64_t now_ms, fence_ms, stacks_ms /* that the stacks may take */;
static int looks;
static unsigned
    part; /* each step takes this part of the time that it may take; 0: none of it */
static char warnings[1024];

/* ---- Stand-ins ------------------------------------------------------------------------------ */

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
uint64_t __wrap_fence_next_ms(void);
int __wrap_worker_group_count(const struct worker_group *group);
const struct worker *__wrap_worker_group_worker(const struct worker_group *group,
                                                int i);
bool __wrap_agent_find_places(struct agent_place *list, int count, uint64_t due_ms,
                              uint64_t limit_ms);
int __wrap_agent_write_stacks(const struct agent *of, int rank, uint64_t limit_ms,
                              struct ct_buf *out, struct ctrun_error *err);
bool __wrap_agent_make_round_path(char *dst, size_t size, const struct agent *of,
                                  const char *name, const char *suffix);
int __wrap_blocking_call(void (*fn)(void *job), void (*free_job)(void *job), void *job,
                         uint64_t timeout_ms);
void __wrap_live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    *out = (struct timespec){.tv_sec = (time_t)(now_ms / 1000),
                             .tv_nsec = (long)(now_ms % 1000 * 1000000)};
    return 0;
}

static void pass(uint64_t limit_ms)
{
    now_ms += part > 0 ? limit_ms / part : 0;
}

uint64_t __wrap_fence_next_ms(void)
{
    return fence_ms;
}

int __wrap_worker_group_count(const struct worker_group *group)
{
    return WORKERS;
}

const struct worker *__wrap_worker_group_worker(const struct worker_group *group, int i)
{
    return &workers[i];
}

bool __wrap_agent_find_places(struct agent_place *list, int count, uint64_t due_ms,
                              uint64_t limit_ms)
{
    looks++;
    pass(limit_ms);
    for (int i = 0; i < count; i++) {
        const int local = list[i].rank - FIRST;

        (void)ct_copy(list[i].at.own, sizeof list[i].at.own, places[local]);
        list[i].at.meets = meets[local];
    }
    return true;
}

int __wrap_agent_write_stacks(const struct agent *of, int rank, uint64_t limit_ms,
                              struct ct_buf *out, struct ctrun_error *err)
{
    assert_int_equal(rank, -1);
    stacks_ms = limit_ms;
    pass(limit_ms);
    return ct_buf_append(out, stacks, strlen(stacks)) < 0 ? -1 : WORKERS;
}

bool __wrap_agent_make_round_path(char *dst, size_t size, const struct agent *of,
                                  const char *name, const char *suffix)
{
    return ct_format(dst, size, "/dev/null") > 0;
}

int __wrap_blocking_call(void (*fn)(void *job), void (*free_job)(void *job), void *job,
                         uint64_t timeout_ms)
{
    pass(timeout_ms);
    fn(job);
    return 0;
}

void __wrap_live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread)
{
    (void)ct_copy(dst, LIVE_STATE_MAX, "sleeping");
}

static void keep_warning(void *context, enum ctrun_log_level level, const char *line)
{
    (void)ct_append(warnings, sizeof warnings, "%s\n", line); /* cut is fine */
}

/* Global rank 8 has ended of a time-out; 9 waits in a collective, and 10 is in none. */
static int begin(void **state)
{
    options = (struct agent_options){.absent_ms = 0};
    agent = (struct agent){.options = &options,
                           .state = AGENT_RUNNING,
                           .start = {.generation = 3,
                                     .group_rank = 1,
                                     .group_world_size = 2,
                                     .rank_base = FIRST,
                                     .world_size = 11,
                                     .role_world_size = 11}};
    for (int i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){.state = i == 0 ? WORKER_ENDED : WORKER_RUNNING,
                                     .pid = 100 + i,
                                     .rank = FIRST + i,
                                     .local_rank = i};
    failure = (struct ct_failure){.cause = CT_CAUSE_SIGNAL,
                                  .code = SIGABRT,
                                  .rank = FIRST,
                                  .text = "Watchdog caught collective operation "
                                          "timeout: W\nterminate called after "
                                          "throwing an instance of 'x'"};
    failure_hints_add(&failure, false, "");
    own = failure;
    own.facts = (struct ct_facts){0};
    places[1] = "step (/train.py:9)";
    places[2] = "load (/train.py:3)";
    meets[1] = true;
    stacks = "rank 10: pid 102, Python 3.11, sleeping\n"
             "  thread 102, sleeping\n"
             "    in __poll (libc.so.6)\n"
             "    load (/train.py:3)\n";
    now_ms = NOW_MS;
    fence_ms = UINT64_MAX;
    looks = 0;
    part = 0;
    warnings[0] = '\0';
    ct_log_set_sink(keep_warning, NULL, CTRUN_LOG_WARN);
    return 0;
}

#define LOOK_TEST(name) TEST_AROUND(name, begin, NULL)

/* ---- Who is named --------------------------------------------------------------------------- */

LOOK_TEST(ranks_are_those_of_the_world)
{
    agent_look_after_timeout(&agent, &failure, &own);
    assert_int_equal(looks, 2);
    assert_non_null(
        strstr(facts_text(&own.facts),
               " rank 10 was in no collective: load (/train.py:3), sleeping\n"));
    assert_non_null(strstr(facts_text(&own.facts), " rank 9 waited in a collective\n"));
    assert_non_null(strstr(warnings, "when rank 8 had ended, rank 10 was in no"));
    assert_null(strstr(warnings, "rank 9")); /* it does nothing wrong */
    assert_string_equal(agent.timeout_view.waiting_ranks, "9");
    assert_int_equal(agent.timeout_view.ranks, 2);
}

LOOK_TEST(a_failure_of_another_node_is_answered_with_warnings)
{
    failure.rank = 2;
    agent_look_after_timeout(&agent, &failure, NULL);
    assert_non_null(strstr(warnings, "when rank 2 had ended, rank 10 was in no"));
    assert_non_null(strstr(warnings, "when rank 2 had ended, rank 9 waited in a"));
}

/* Ranks of another role may be in no collective at all. */
static void check_that_nobody_is_named(void)
{
    agent_look_after_timeout(&agent, &failure, &own);
    assert_int_equal(looks, 1);
    assert_null(strstr(facts_text(&own.facts), "collective"));
    assert_non_null(
        strstr(facts_text(&own.facts), "still ran had these stacks: /dev/null\n"));
    assert_string_equal(warnings, "");
    assert_string_equal(agent.timeout_view.waiting_ranks, "");
}

LOOK_TEST(with_several_roles_on_a_node_its_stacks_are_saved_and_nobody_is_named)
{
    options.join.roles.count = 2;
    agent.start.role_count = 2;
    agent.start.role_world_size = 4; /* of the first one */
    check_that_nobody_is_named();
}

LOOK_TEST(with_a_role_of_each_node_nobody_is_named_either)
{
    agent.start.role_world_size = 3;
    check_that_nobody_is_named();
}

/* ---- When it ends --------------------------------------------------------------------------- */

/* How long it takes at the most. */
static uint64_t measure(uint64_t fence)
{
    uint64_t longest = 0;

    for (part = 1; part < 5; part++) {
        fence_ms = fence;
        now_ms = NOW_MS;
        agent_look_after_timeout(&agent, &failure, &own);
        longest = now_ms - NOW_MS > longest ? now_ms - NOW_MS : longest;
    }
    return longest;
}

LOOK_TEST(it_ends_when_half_of_the_time_before_the_fence_is_over)
{
    assert_int_equal(measure(NOW_MS + 1200), 600);
    assert_int_equal(measure(NOW_MS), 0);
    assert_int_equal(measure(NOW_MS - 1), 0);
}

LOOK_TEST(without_a_fence_that_is_near_it_takes_its_own_time)
{
    assert_int_equal(measure(UINT64_MAX), TIMEOUT_LOOK_MS);
    assert_int_equal(measure(NOW_MS + 60000), TIMEOUT_LOOK_MS);
}

LOOK_TEST(time_is_left_for_the_second_look)
{
    agent_look_after_timeout(&agent, &failure, &own);
    assert_int_equal(stacks_ms, TIMEOUT_LOOK_MS - TIMEOUT_PAUSE_MS);
    fence_ms = NOW_MS + TIMEOUT_PAUSE_MS;
    agent_look_after_timeout(&agent, &failure, &own);
    assert_int_equal(stacks_ms, 0);
}
