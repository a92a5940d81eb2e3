/* SPDX-License-Identifier: Apache-2.0 */
/* A work that its owner only tries, with ctrun_work_test(), until it is done: a rank that is gone or
 * late ends it as it ends a wait, and sends take in what others send. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/thread.h"

enum {
    GROUP_MS = 60000,
    SHORT_MS = 100,   /* deadline of a call that cannot succeed */
    TRIES_MS = 30000, /* much longer than a failure takes to show */
    LARGE = 1 << 20,  /* elements: more than a ring holds */
    BEGUN = 1,        /* counter: rank 1 dies now */
    TOLD = 2,         /* counter: rank 0 has its error */
};

/* A rank without the helper thread: its works continue in its calls only. */
static bool has_no_thread;
int __real_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);
int __wrap_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);
int __wrap_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context)
{
    return has_no_thread ? -EAGAIN : __real_ct_thread_start(thread, fn, context);
}

static struct ctrun_group *open_short(int rank)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.timeout_ms = GROUP_MS;
    return ranks_open(rank, NULL, &options);
}

static void try_until_done(struct ctrun_work *work)
{
    const uint64_t deadline_ms = ct_deadline_ms(TRIES_MS);
    struct ctrun_error err = {.text = ""};

    while (ctrun_work_test(work, &err) == 0)
        CHECK(ct_now_ms() < deadline_ms);
}

/* In memory of the group each rank reduces its own slice. Rank 1 dies before the call, or when it has
 * begun the call and before it can do its slice. */
static int one_dies(int rank, void *context)
{
    const bool begins = *(const bool *)context;
    struct ctrun_group *group = open_short(rank);
    struct ctrun_work *work;
    struct ctrun_error err;
    void *data;

    has_no_thread = rank == 1;
    CHECK_OK(ctrun_group_alloc(group, LARGE * sizeof(float), &data, &err));
    if (rank == 0)
        ranks_await(BEGUN, 1);
    if (rank == 0 || begins)
        CHECK_OK(ctrun_all_reduce(group, data, data, LARGE, CTRUN_F32, CTRUN_SUM,
                                  IN_BACKGROUND(&work), &err));
    if (rank == 1) {
        ranks_signal(BEGUN);
        _exit(0);
    }
    try_until_done(work);
    CHECK(ctrun_work_wait(work, &err) == CTRUN_E_PEER_LOST);
    CHECK(strstr(err.text, "rank 1"));
    ctrun_group_close(group);
    return 0;
}

TEST(a_death_ends_a_work_that_is_tried)
{
    for (int begins = 0; begins < 2; begins++)
        assert_int_equal(ranks_run(2, one_dies, &(bool){begins}), 0);
}

static int one_is_late(int rank, void *context)
{
    const bool is_message = *(const bool *)context;
    struct ctrun_group *group = open_short(rank);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    float x = 1;

    options.timeout_ms = SHORT_MS;
    options.work = &work;
    if (rank == 0) {
        CHECK_OK(is_message ? ctrun_recv(group, &x, 1, CTRUN_F32, 1, &options, &err)
                            : ctrun_all_reduce(group, &x, &x, 1, CTRUN_F32, CTRUN_SUM,
                                               &options, &err));
        try_until_done(work);
        CHECK(ctrun_work_wait(work, &err) == CTRUN_E_TIMEOUT);
        CHECK(strstr(err.text, "rank 1"));
        ranks_signal(TOLD);
    }
    ranks_await(TOLD, 1);
    CHECK(ctrun_barrier(group, NULL, &err) == CTRUN_E_TIMEOUT);
    CHECK(strstr(err.text, rank == 0
                               ? "barrier: this group has failed before: "
                               : "barrier: this group has failed before: rank 0: "));
    ranks_signal(TOLD);
    ranks_await(TOLD, 3); /* a rank that leaves is another reason */
    ctrun_group_close(group);
    return 0;
}

TEST(a_late_rank_ends_a_work_that_is_tried)
{
    for (int is_message = 0; is_message < 2; is_message++)
        assert_int_equal(ranks_run(2, one_is_late, &(bool){is_message}), 0);
}

WORLD_TEST(sends_that_are_tried_take_in_what_the_other_sends, 2)
{
    static int32_t out[LARGE], in[LARGE];
    const int rank = ctrun_group_rank(group);
    struct ctrun_work *work;
    struct ctrun_error err;

    for (int i = 0; i < LARGE; i++)
        out[i] = rank * LARGE + i;
    CHECK_OK(
        ctrun_send(group, out, LARGE, CTRUN_I32, 1 - rank, IN_BACKGROUND(&work), &err));
    try_until_done(work);
    CHECK_OK(ctrun_work_wait(work, &err));
    CHECK_OK(ctrun_recv(group, in, LARGE, CTRUN_I32, 1 - rank, NULL, &err));
    for (int i = 0; i < LARGE; i++)
        CHECK(in[i] == (1 - rank) * LARGE + i);
}
