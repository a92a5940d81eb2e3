/* SPDX-License-Identifier: Apache-2.0 */
/* The rank that the others wait for, found from the times at which ranks enter their calls. The
 * jobs are simulated: a step takes each rank 100 ms, with random differences, and the next step
 * starts when all ranks have finished. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/watch/straggler.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    RANKS = 8,
    CALLS_MAX = 1024,
    GROUP = 7,
    OTHER_GROUP = 8,
    MS = 1000000
};

struct job {
    struct straggler *straggler;
    uint64_t random;
    uint64_t now_ns; /* when all ranks start the next step */
    int64_t number;
    int slow;      /* rank; -1: none */
    double slower; /* how much longer its steps take; 1: twice as long */
    double jitter;
    double step_ns;
    int buckets; /* calls of a step; ranks wait only in the last one */
    int short_calls;
    int count; /* calls of each rank in the list */
    struct straggler_call calls[RANKS][CALLS_MAX];
};

static struct job job; /* the current job */
static const struct job usual = {.now_ns = 1000000000000,
                                 .slow = -1,
                                 .slower = 0.05,
                                 .jitter = 0.1,
                                 .step_ns = 100.0 * MS,
                                 .buckets = 1};

static void begin(uint64_t seed)
{
    straggler_destroy(job.straggler);
    job = usual;
    job.random = seed * 0x9e3779b97f4a7c15 + 1;
    job.straggler = straggler_create(RANKS);
    assert_non_null(job.straggler);
}

static int end(void **state)
{
    straggler_destroy(job.straggler);
    return 0;
}

/* A random number from -1 to 1 (xorshift64*). */
static double chance(void)
{
    job.random ^= job.random >> 12;
    job.random ^= job.random << 25;
    job.random ^= job.random >> 27;
    return (double)((job.random * 0x2545f4914f6cdd1d) >> 11) / (double)(1ULL << 52) - 1;
}

static void enter(int rank, int call, double after_ns, uint64_t group, uint64_t shape)
{
    assert_true(call < CALLS_MAX);
    job.calls[rank][call] = (struct straggler_call){
        .group = group,
        .number = job.number + 1 + call - job.count,
        .entered_ns = job.now_ns + (uint64_t)after_ns,
        .shape = shape};
}

/* All ranks make `calls`, the last one at the end of their computation, and then wait for each
 * other. */
static void play_part(double ns, int calls, const double *extra_ns, uint64_t shape)
{
    double last_ns = 0;

    for (int r = 0; r < RANKS; r++) {
        const double own_ns = ns * (1 + job.jitter * chance()) *
                                  (r == job.slow ? 1 + job.slower : 1) +
                              (extra_ns ? extra_ns[r] : 0);

        for (int c = 0; c < calls; c++)
            enter(r, job.count + c, own_ns * (c + 1) / calls, GROUP,
                  shape + (uint64_t)c);
        if (own_ns > last_ns)
            last_ns = own_ns;
    }
    job.count += calls;
    job.number += calls;
    job.now_ns += (uint64_t)last_ns + 10000;
}

static void play(int steps)
{
    for (int i = 0; i < steps; i++) {
        play_part(job.step_ns, job.buckets, NULL, 0);
        for (int s = 0; s < job.short_calls; s++)
            play_part(job.step_ns / 1000, 1, NULL, 100 + (uint64_t)s);
    }
}

/* Gives all calls, some of them a second time, as a recorder does, and looks for a straggler. */
static int look(struct lateness *found)
{
    int rc;

    for (int r = 0; r < RANKS; r++)
        assert_int_equal(straggler_give(job.straggler, r, job.calls[r], job.count), 0);
    assert_true(straggler_take(job.straggler) >= 0);
    rc = straggler_find(job.straggler, found);
    assert_true(rc >= 0);
    if (job.count > CALLS_MAX / 2) {
        const int left = job.count - CALLS_MAX / 4;

        for (int r = 0; r < RANKS; r++)
            memmove(job.calls[r], job.calls[r] + left,
                    CALLS_MAX / 4 * sizeof *job.calls[r]);
        job.count = CALLS_MAX / 4;
    }
    return rc;
}

/* Looks after every ten steps. Returns after how many steps a rank was reported; 0: none was. */
static int play_until_told(int steps, struct lateness *found)
{
    for (int done = 10; done <= steps; done += 10) {
        play(10);
        if (look(found))
            return done;
    }
    return 0;
}

/* ---- What is promised -------------------------------------------------------------------- */

TEST(one_of_eight_that_is_5_percent_slower_is_named_within_100_steps_20_of_20)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct lateness found;

        begin(seed);
        job.slow = (int)(seed % RANKS);
        assert_int_not_equal(play_until_told(100, &found), 0);
        assert_int_equal(found.rank, job.slow);
    }
}

TEST(nobody_is_named_where_all_differ_by_10_percent_0_of_20)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct lateness found;

        begin(seed);
        assert_int_equal(play_until_told(1000, &found), 0);
    }
}

/* The same for many jobs with one look each: the two tests above do not pass by luck. */
TEST(of_1000_jobs_990_name_the_slow_one_and_2_a_rank_that_is_none)
{
    int right = 0, wrong = 0;

    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct lateness found;

        begin(seed);
        job.slow = seed % 2 ? (int)(seed % RANKS) : -1;
        play(LATENESS_STEPS);
        if (look(&found) > 0 && found.rank == job.slow)
            right++;
        else if (straggler_find(job.straggler, &found) > 0)
            wrong++;
    }
    assert_in_range(right, 990, 1000);
    assert_in_range(wrong, 0, 2);
}

TEST(what_it_costs_is_told)
{
    struct lateness found;
    double late_ns;

    begin(1);
    job.slow = 3;
    job.slower = 0.2;
    play(LATENESS_STEPS + 2);
    assert_int_equal(look(&found), 1);
    assert_int_equal(found.steps, LATENESS_STEPS);
    assert_true(found.late_ns > 17.0 * MS && found.late_ns < 23.0 * MS);
    assert_true(found.share > 0.13 && found.share < 0.22);
    assert_true(straggler_late_ns(job.straggler, 3, &late_ns));
    assert_true(late_ns == found.late_ns);
    assert_true(straggler_late_ns(job.straggler, 2, &late_ns));
    assert_true(late_ns < 3.0 * MS && late_ns > -3.0 * MS);
}

/* ---- What a step is ---------------------------------------------------------------------- */

TEST(buckets_that_nobody_waits_for_and_short_calls_are_one_step)
{
    struct lateness found;

    begin(2);
    job.slow = 5;
    job.slower = 0.2;
    job.buckets = 4;
    job.short_calls = 3;
    play(41);
    assert_int_equal(look(&found), 1);
    assert_int_equal(found.rank, 5);
    assert_in_range(found.steps, 39, 41); /* not 41 times 7 */
    assert_true(found.late_ns > 17.0 * MS && found.late_ns < 23.0 * MS);
}

/* The random delay of a step is in all of its calls: if each call counted, they would be proof. */
TEST(calls_that_nobody_waits_for_make_nobody_a_straggler)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct lateness found;

        begin(seed);
        job.buckets = 6;
        assert_int_equal(play_until_told(300, &found), 0);
    }
}

/* Rank 0 writes for two seconds, and all others wait. */
TEST(a_checkpoint_now_and_then_makes_nobody_a_straggler)
{
    static const double writes[RANKS] = {2000.0 * MS};
    struct lateness found;

    begin(3);
    for (int i = 0; i < 12; i++) {
        play(24);
        play_part(job.step_ns, 1, writes, 0);
        assert_int_equal(look(&found), 0);
    }
    assert_int_equal(found.steps, LATENESS_STEPS); /* these steps count, too */
}

TEST(less_than_a_millisecond_is_not_told)
{
    struct lateness found;

    begin(4);
    job.slow = 1;
    job.slower = 0.5;
    job.step_ns = 1.0 * MS;
    assert_int_equal(play_until_told(200, &found), 0);
}

TEST(few_steps_prove_nothing)
{
    struct lateness found;

    begin(5);
    job.slow = 1;
    job.slower = 1;
    play(LATENESS_STEPS_MIN - 2);
    assert_int_equal(look(&found), 0);
    play(4);
    assert_int_equal(look(&found), 1);
}

TEST(a_rank_that_has_become_as_fast_as_the_others_is_told_no_more)
{
    struct lateness found;

    begin(6);
    job.slow = 1;
    job.slower = 0.2;
    assert_int_not_equal(play_until_told(100, &found), 0);
    job.slow = -1;
    play(110);
    assert_int_equal(look(&found), 0);
}

/* ---- What is given ----------------------------------------------------------------------- */

TEST(a_call_counts_once_and_a_gap_is_no_step)
{
    struct lateness found;

    begin(7);
    play(40);
    (void)look(&found);
    (void)look(&found);
    assert_in_range(found.steps, 37, 39);
    job.count = 0; /* the recorder has dropped the next calls */
    play(10);
    job.count = 0;
    play(10);
    (void)look(&found);
    assert_in_range(found.steps, 45, 48);
}

/* Calls between two ranks, and calls that only some ranks have. */
TEST(the_group_with_the_most_ranks_counts_and_calls_that_all_have)
{
    struct lateness found;

    begin(8);
    job.slow = 6;
    job.slower = 0.3;
    play(60);
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 100; c++)
            enter(r, job.count + c, r * 50.0 * MS, OTHER_GROUP, 0);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(straggler_give(job.straggler, r, job.calls[r],
                                        job.count + (r < 2 ? 100 : 0)),
                         0);
    assert_true(straggler_take(job.straggler) > 50);
    assert_int_equal(straggler_find(job.straggler, &found), 1);
    assert_int_equal(found.rank, 6);
}

TEST(other_ranks_begin_anew)
{
    struct lateness found;

    begin(9);
    play(40);
    (void)look(&found);
    play(10);
    for (int r = 0; r < RANKS - 1; r++) /* the last rank is gone */
        assert_int_equal(straggler_give(job.straggler, r, job.calls[r], job.count), 0);
    assert_true(straggler_take(job.straggler) > 0);
    (void)straggler_find(job.straggler, &found);
    assert_in_range(found.steps, 47, 49); /* as many as the others had by then */
    straggler_forget(job.straggler);
    assert_int_equal(straggler_find(job.straggler, &found), 0);
    assert_int_equal(straggler_take(job.straggler), 0);
}

/* Random numbers, which no job makes. */
TEST(numbers_of_no_job_do_no_harm)
{
    struct lateness found;

    begin(10);
    for (int round = 0; round < 50; round++) {
        for (int r = 0; r < RANKS; r++)
            for (int c = 0; c < CALLS_MAX; c++)
                job.calls[r][c] = (struct straggler_call){
                    .group = (uint64_t)(chance() * 3 + 3),
                    .number = (int64_t)(chance() * 1e18),
                    .entered_ns = (uint64_t)((chance() + 1) * 9e18)};
        job.count = round % 2 ? CALLS_MAX : 3;
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(straggler_give(job.straggler, r, job.calls[r], job.count),
                             0);
        assert_true(straggler_take(job.straggler) >= 0);
        assert_true(straggler_find(job.straggler, &found) >= 0);
    }
}

TEST(no_memory_is_told)
{
    struct lateness found;
    int rc = -ENOMEM;

    for (size_t n = 1; n <= 6; n++) {
        ct_alloc_fail_at(n);
        assert_null(straggler_create(RANKS));
    }
    ct_alloc_fail_at(0);
    begin(11);
    play(40);
    ct_alloc_fail_at(1);
    assert_int_equal(straggler_give(job.straggler, 0, job.calls[0], job.count),
                     -ENOMEM);
    for (size_t n = 1; rc == -ENOMEM; n++) {
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(straggler_give(job.straggler, r, job.calls[r], job.count),
                             0);
        ct_alloc_fail_at(n);
        rc = straggler_take(job.straggler);
    }
    assert_true(rc > 0);
    ct_alloc_fail_at(1);
    assert_int_equal(straggler_find(job.straggler, &found), -ENOMEM);
    ct_alloc_fail_at(0);
}

int main(void)
{
    return test_run(NULL, end);
}
