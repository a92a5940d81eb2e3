/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of an NCCL group tell each other, over the fake of tests/lib/fake_nccl.h: how one
 * of them ends the calls of all. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"

enum {
    RANKS = 3,
    DONE = 1,
    COUNT = 4,
    SHORT_MS = 100,
    LONG_MS = 600000, /* longer than a test may last */
};

static const char abort_key[] = "ctrun/group/7.0.0/abort";
static const char late_key[] = "ctrun/group/7.0.0/late/1";

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    return 0;
}

static struct ctrun_group *open_group(const struct ct_group_place *place)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err;

    options.backend = "nccl";
    options.timeout_ms = LONG_MS;
    CHECK_OK(ct_group_open(&group, place, &options, &err));
    return group;
}

static struct ctrun_group *open_at(int rank)
{
    const struct ct_group_place place = ranks_place(rank, NULL);

    return open_group(&place);
}

static int reduce(struct ctrun_group *group, struct ctrun_error *err)
{
    float data[COUNT] = {0};

    return ctrun_all_reduce(group, data, data, COUNT, CTRUN_F32, CTRUN_SUM, NULL, err);
}

static void expect(int rc, int want, const struct ctrun_error *err, const char *text)
{
    if (rc == want && strstr(err->text, text))
        return;
    fprintf(stderr, "wanted %d with '%s', got %d: %s\n", want, text, rc, err->text);
    exit(1);
}

/* ---- One ends the calls of all ------------------------------------------------------------ */

/* The ranks that wait would do so until the deadline: the fake, as NCCL may, tells them nothing. */
RANKS_TEST_AROUND(an_abort_ends_the_calls_of_the_others, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_error err;

    CHECK_OK(reduce(group, &err));
    if (rank == 2)
        ctrun_group_abort(group);
    for (int i = 0; i < 2; i++)
        expect(reduce(group, &err), CTRUN_E_ABORTED, &err, "rank 2 aborted the group");
    ctrun_group_close(group);
    return 0;
}

RANKS_TEST_AROUND(an_abort_ends_a_call_that_is_only_asked_for, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_work *work;
    struct ctrun_error err;
    float data[COUNT] = {0};
    int rc = 0;

    if (rank == 2) {
        ctrun_group_abort(group);
    } else {
        CHECK_OK(ctrun_all_reduce(group, data, data, COUNT, CTRUN_F32, CTRUN_SUM,
                                  IN_BACKGROUND(&work), &err));
        while (rc == 0 && (rc = ctrun_work_test(work, &err)) == 0)
            sched_yield();
        expect(ctrun_work_wait(work, &err), CTRUN_E_ABORTED, &err, "rank 2 aborted");
    }
    ctrun_group_close(group);
    return 0;
}

/* The host waits for the stream only. */
RANKS_TEST_AROUND(an_abort_ends_a_call_that_a_stream_waits_for, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_work *work;
    struct ctrun_error err;
    cudaStream_t stream;
    void *data;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK_OK(ctrun_group_alloc(group, COUNT * sizeof(float), &data, &err));
    if (rank == 2) {
        ctrun_group_abort(group);
    } else {
        CHECK_OK(ctrun_all_reduce(group, data, data, COUNT, CTRUN_F32, CTRUN_SUM,
                                  IN_BACKGROUND(&work), &err));
        CHECK_OK(ctrun_work_wait_on(work, stream, &err));
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        expect(reduce(group, &err), CTRUN_E_ABORTED, &err, "rank 2 aborted the group");
    }
    ctrun_group_close(group);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return 0;
}

RANKS_TEST_AROUND(a_failure_ends_the_calls_of_the_others, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_error err;

    if (rank == 1)
        fake_nccl.refuse_call = ncclSystemError;
    expect(reduce(group, &err), -EIO, &err,
           "rank 1: nccl: all_reduce: a fake NCCL error");
    ctrun_group_close(group);
    return 0;
}

RANKS_TEST_AROUND(a_damaged_note_ends_the_group, RANKS, begin, NULL)
{
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group = open_group(&place);
    struct ctrun_error err;

    if (rank == 2)
        CHECK_OK(place.board.put(NULL, abort_key, "5\033[2J"));
    else
        expect(reduce(group, &err), CTRUN_E_PROTOCOL, &err, "is damaged");
    ctrun_group_close(group);
    return 0;
}

/* ---- What is not told ---------------------------------------------------------------------- */

/* The last rank closes the group while a call of its own waits for the others. */
RANKS_TEST_AROUND(a_close_is_no_abort, RANKS, begin, NULL)
{
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group = open_group(&place);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work = NULL;
    char note[CT_NOTE_MAX];
    struct ctrun_error err;

    options.work = &work;
    options.timeout_ms = SHORT_MS;
    if (rank == 2)
        CHECK_OK(ctrun_barrier(group, &options, &err));
    ctrun_group_close(group);
    free(work); /* nobody waits for it */
    CHECK(place.board.read(NULL, abort_key, note) == 0);
    return 0;
}

static int lose(void *context, uint32_t losses, bool leaves_node,
                struct ctrun_error *err)
{
    const bool *is_lost = context;

    return *is_lost ? ct_fail(err, CTRUN_E_PEER_LOST, "rank 1 is lost") : 0;
}

/* All hear of the loss from their agents. What NCCL says may be that loss. */
RANKS_TEST_AROUND(where_others_continue_a_loss_is_not_told, RANKS, begin, NULL)
{
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    bool is_lost = false;
    char note[CT_NOTE_MAX];
    struct ctrun_error err;

    place.losses = (struct ct_loss_watch){
        .check = lose, .context = &is_lost, .sees_ranks = true};
    group = open_group(&place);
    CHECK_OK(reduce(group, &err));
    is_lost = rank != 2;
    if (rank == 2)
        fake_nccl.refuse_call = ncclSystemError;
    expect(reduce(group, &err), rank == 2 ? -EIO : CTRUN_E_PEER_LOST, &err,
           rank == 2 ? "a fake NCCL error" : "rank 1 is lost");
    ctrun_group_close(group);
    ranks_signal(DONE);
    ranks_await(DONE, RANKS);
    CHECK(place.board.read(NULL, abort_key, note) == 0);
    return 0;
}

/* ---- Ranks that do not come ---------------------------------------------------------------- */

/* The first rank gives up once the second has told that it waits. */
RANKS_TEST_AROUND(a_time_out_names_who_has_not_come, RANKS, begin, NULL)
{
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group = open_group(&place);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err;

    CHECK_OK(reduce(group, &err));
    if (rank == 0) {
        CHECK_OK(place.bootstrap.wait(NULL, late_key, ct_deadline_ms(LONG_MS), &err));
        options.timeout_ms = SHORT_MS;
    }
    if (rank == 2)
        ranks_await(DONE, 2);
    expect(ctrun_barrier(group, &options, &err), CTRUN_E_TIMEOUT, &err,
           "rank 0: nccl: barrier: no answer in time from: rank 2");
    CHECK(!strstr(err.text, "rank 1"));
    ranks_signal(DONE);
    ctrun_group_close(group);
    return 0;
}

/* What a rank told about a call that has ended since says nothing about this one. */
RANKS_TEST_AROUND(a_rank_that_was_late_before_is_named, RANKS, begin, NULL)
{
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group = open_group(&place);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err;

    if (rank != 1)
        CHECK_OK(place.bootstrap.wait(NULL, late_key, ct_deadline_ms(LONG_MS), &err));
    CHECK_OK(reduce(group, &err));
    if (rank)
        ranks_await(DONE, 1);
    options.timeout_ms = SHORT_MS;
    expect(ctrun_barrier(group, &options, &err), CTRUN_E_TIMEOUT, &err,
           "rank 0: nccl: barrier: no answer in time from: rank 1, rank 2");
    ranks_signal(DONE);
    ctrun_group_close(group);
    return 0;
}
