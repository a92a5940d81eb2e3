/* SPDX-License-Identifier: Apache-2.0 */
/* Background calls while the program makes no call on the group: they are done, and fail, as if it
 * waited for them. Each test hangs until its deadline if nobody continues them. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"

enum {
    GROUP_MS = 20000,
    SHORT_MS = 100,
    LARGE = 1 << 18, /* elements: many steps, and more than a ring holds */
    DONE = 3,        /* counters */
    LEFT = 5,
};

enum kind {
    STAGED,
    DIRECT,
    MESSAGE,
    QUEUE, /* behind another call */
    KINDS
};

static int start(struct ctrun_group *group, enum kind kind, float *data,
                 const struct ctrun_call_options *options, struct ctrun_error *err)
{
    if (kind != MESSAGE)
        return ctrun_all_reduce(group, data, data, LARGE, CTRUN_F32, CTRUN_SUM, options,
                                err);
    return ctrun_group_rank(group) == 0
               ? ctrun_send(group, data, LARGE, CTRUN_F32, 1, options, err)
               : ctrun_recv(group, data, LARGE, CTRUN_F32, 0, options, err);
}

/* Rank 0 makes no call until rank 1 is done. */
static void computes(struct ctrun_group *group, void *context)
{
    static float own[LARGE], before[LARGE];
    const enum kind kind = *(const enum kind *)context;
    const int rank = ctrun_group_rank(group);
    struct ctrun_work *works[2] = {NULL};
    struct ctrun_error err;
    float *data = own;
    void *shared;

    if (kind == DIRECT) {
        CHECK_OK(ctrun_group_alloc(group, sizeof own, &shared, &err));
        data = shared;
    }
    for (int i = 0; i < LARGE; i++)
        data[i] = (float)(i % 100 + rank);
    if (rank == 0) {
        if (kind == QUEUE)
            CHECK_OK(start(group, STAGED, before, IN_BACKGROUND(&works[0]), &err));
        CHECK_OK(start(group, kind, data, IN_BACKGROUND(&works[1]), &err));
        ranks_await(DONE, 1);
        for (int i = 0; i < 2; i++)
            if (works[i])
                CHECK_OK(ctrun_work_wait(works[i], &err));
    } else {
        if (kind == QUEUE)
            CHECK_OK(start(group, STAGED, before, NULL, &err));
        CHECK_OK(start(group, kind, data, NULL, &err));
        ranks_signal(DONE);
    }
    for (int i = 0; i < LARGE; i++)
        CHECK(data[i] == (float)(kind == MESSAGE ? i % 100 : i % 100 * 2 + 1));
}

TEST(works_continue_while_the_program_makes_no_call)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        worlds_run_with(2, computes, &kind);
}

/* Each round is continued by the helper on one rank; blocking calls, tries and waits come between,
 * so that both take turns. */
WORLD_TEST(the_helper_and_the_program_take_turns, 2)
{
    enum {
        ROUNDS = 30,
        SIZE = 40000
    };
    static float data[3][SIZE];
    const int rank = ctrun_group_rank(group);
    struct ctrun_work *works[3];
    struct ctrun_error err;

    for (int round = 0; round < ROUNDS; round++) {
        for (int w = 0; w < 3; w++) {
            for (int i = 0; i < SIZE; i++)
                data[w][i] = (float)(i % 100 + rank + w);
            CHECK_OK(ctrun_all_reduce(group, data[w], data[w], SIZE, CTRUN_F32,
                                      CTRUN_SUM, IN_BACKGROUND(&works[w]), &err));
        }
        if (round % 2 == rank) {
            ranks_await(DONE, (unsigned)round + 1);
        } else {
            while (round % 3 == 0 && ctrun_work_test(works[0], &err) == 0)
                ;
            CHECK_OK(ctrun_work_wait(works[2], &err));
            ranks_signal(DONE);
        }
        for (int w = 0; w < (round % 2 == rank ? 3 : 2); w++)
            CHECK_OK(ctrun_work_wait(works[w], &err));
        CHECK_OK(ctrun_barrier(group, NULL, &err));
        for (int w = 0; w < 3; w++)
            for (int i = 0; i < SIZE; i++)
                CHECK(data[w][i] == (float)((i % 100 + w) * 2 + 1));
    }
}

/* Rank 1 waits for a message of rank 2 until the group fails, which only rank 0's call can cause. */
static void computes_too_long(struct ctrun_group *group, void *context)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    float x = 1;

    (void)context;
    if (ctrun_group_rank(group) == 0) {
        options.timeout_ms = SHORT_MS;
        options.work = &work;
        CHECK_OK(ctrun_barrier(group, &options, &err));
        ranks_await(DONE, 1);
        CHECK(ctrun_work_wait(work, &err) == CTRUN_E_TIMEOUT);
        CHECK(strstr(err.text, "barrier: no answer in time from: rank 1"));
    } else if (ctrun_group_rank(group) == 1) {
        CHECK(ctrun_recv(group, &x, 1, CTRUN_F32, 2, NULL, &err) == CTRUN_E_TIMEOUT);
        CHECK(strstr(err.text, "rank 1"));
        ranks_signal(DONE);
    } else {
        ranks_await(DONE, 1);
    }
}

TEST(a_work_fails_at_its_deadline_while_the_program_makes_no_call)
{
    worlds_run_in((struct world){3, WIRE_SHM}, computes_too_long, NULL);
}

/* The helper has begun to wait for rank 1 when rank 0 closes the group, or when it forks a child
 * that has no such thread. */
static int leaves(int rank, void *context)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_work *work, *last;
    struct ctrun_group *group;
    struct ctrun_error err;
    int status;
    pid_t pid;

    (void)context;
    options.timeout_ms = GROUP_MS;
    group = ranks_open(rank, "a", &options);
    if (rank == 0) {
        CHECK_OK(ctrun_barrier(group, IN_BACKGROUND(&work), &err));
        CHECK_OK(ctrun_barrier(group, IN_BACKGROUND(&last), &err));
        ranks_await(DONE, 1);
        if ((pid = fork()) == 0) {
            CHECK(ctrun_work_wait(last, &err) == CTRUN_E_USAGE);
            ctrun_group_close(group);
            _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        CHECK_OK(ctrun_work_wait(work, &err));
        ctrun_group_close(group);
        ranks_signal(LEFT);
        CHECK(ctrun_work_wait(last, &err) == CTRUN_E_ABORTED);
        return 0;
    }
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ranks_signal(DONE);
    ranks_await(LEFT, 1);
    (void)ctrun_barrier(group, NULL, &err); /* the helper may have posted `last` */
    CHECK(ctrun_barrier(group, NULL, &err) == CTRUN_E_PEER_LOST);
    ctrun_group_close(group);
    return 0;
}

TEST(a_group_whose_helper_rests_is_closed_and_is_not_inherited)
{
    assert_int_equal(ranks_run(2, leaves, NULL), 0);
}
