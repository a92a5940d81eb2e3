/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an NCCL group, over the fake of tests/lib/fake_nccl.h: what they tell each other where
 * one fails, does not come or makes another call; and collectives and splits that the tests of DDP
 * do not make. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

enum {
    RANKS = 3,
    DONE = 1,
    COUNT = 4,
    SHORT_MS = 100,
    WAIT_MS = 3000,   /* for a rank that failed before the others know the group */
    LONG_MS = 600000, /* longer than a test may last */
    LARGE = 1 << 16,  /* bytes of memory that NCCL allocates */
};

/* The key of the first group's note: static. */
static const char *key_of(const struct ct_group_place *place, const char *note)
{
    static char key[CT_BOOTSTRAP_KEY_MAX];
    struct ctrun_error err;
    size_t length;
    void *id;

    CHECK_OK(place->bootstrap.get(NULL, "ctrun/group/7.0.0/nccl/0", &id, &length,
                                  ct_deadline_ms(LONG_MS), &err));
    (void)ct_format(key, sizeof key, "ctrun/group/7.0.0/%08x/%s",
                    (uint32_t)ct_hash(id, length), note);
    free(id);
    return key;
}

/* Until rank 1 has left its note that collective `number` is late. */
static void await_late(const struct ct_group_place *place, const char *number)
{
    const char *key = key_of(place, "late/1");
    bool is_there = false;
    struct ctrun_error err;
    size_t length;
    void *note;

    while (!is_there) {
        CHECK_OK(place->bootstrap.get(NULL, key, &note, &length,
                                      ct_deadline_ms(LONG_MS), &err));
        is_there = length > 3 && memcmp(note, "1 ", 2) == 0 &&
                   memcmp((char *)note + 2, number, strlen(number)) == 0;
        free(note);
        sched_yield();
    }
}

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

    /* A rank may not have returned when rank 2 has, and aborts. */
    if (reduce(group, &err) < 0)
        CHECK(rank != 2 && err.code == CTRUN_E_ABORTED);
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
        CHECK_OK(place.board.put(NULL, key_of(&place, "abort"), "5\033[2J"));
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
    CHECK(place.board.read(NULL, key_of(&place, "abort"), note) == 0);
    return 0;
}

static int lose(void *context, uint32_t losses, bool leaves_node,
                struct ctrun_error *err)
{
    const bool *is_lost = context;

    return *is_lost ? ct_fail(err, CTRUN_E_PEER_LOST, "rank 1 is lost") : 0;
}

static int lose_none(void *context, uint32_t losses, bool leaves_node,
                     struct ctrun_error *err)
{
    return 0;
}

/* The ranks continue without one that is lost. */
static struct ct_group_place place_that_survives(int rank)
{
    struct ct_group_place place = ranks_place(rank, NULL);

    place.losses = (struct ct_loss_watch){.check = lose_none, .sees_ranks = true};
    return place;
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
    CHECK(place.board.read(NULL, key_of(&place, "abort"), note) == 0);
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
        await_late(&place, "2 ");
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
        await_late(&place, "1 ");
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

/* ---- Calls that differ --------------------------------------------------------------------- */

/* The fake spins for ever. Which two ranks the text names depends on who is late first. */
RANKS_TEST_AROUND(a_rank_with_another_count_is_a_mismatch, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    float data[2 * COUNT] = {0};
    struct ctrun_error err;
    int rc;

    CHECK_OK(reduce(group, &err));
    rc = ctrun_all_reduce(group, data, data, rank == 2 ? 2 * COUNT : COUNT, CTRUN_F32,
                          CTRUN_SUM, NULL, &err);
    expect(rc, CTRUN_E_MISMATCH, &err, "calls all_reduce of 4 f32, SUM (collective 2)");
    expect(rc, CTRUN_E_MISMATCH, &err,
           "rank 2 calls all_reduce of 8 f32, SUM (collective 2)");
    ctrun_group_close(group);
    return 0;
}

static int broadcast(struct ctrun_group *group, void *data, struct ctrun_work **work,
                     struct ctrun_error *err)
{
    return ctrun_broadcast(group, data, data, COUNT, CTRUN_F32, 1,
                           work ? IN_BACKGROUND(work) : NULL, err);
}

static int scatter_sums(struct ctrun_group *group, void *data, struct ctrun_work **work,
                        struct ctrun_error *err)
{
    float *own = (float *)data + COUNT * ctrun_group_rank(group);

    return ctrun_reduce_scatter(group, data, own, COUNT, CTRUN_F32, CTRUN_MAX,
                                work ? IN_BACKGROUND(work) : NULL, err);
}

/* Both calls were made before, and a stream waits: the thread of a group finds that they hang. */
RANKS_TEST_AROUND(another_call_is_found_where_no_host_waits, 2, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_work *work;
    struct ctrun_error err;
    cudaStream_t stream;
    void *data;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK_OK(ctrun_group_alloc(group, 2 * COUNT * sizeof(float), &data, &err));
    CHECK_OK(broadcast(group, data, NULL, &err));
    CHECK_OK(scatter_sums(group, data, NULL, &err));
    CHECK_OK(rank ? scatter_sums(group, data, &work, &err)
                  : broadcast(group, data, &work, &err));
    CHECK_OK(ctrun_work_wait_on(work, stream, &err));
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    expect(reduce(group, &err), CTRUN_E_MISMATCH, &err,
           "rank 0 calls broadcast of 4 f32 from member 1 (collective 3)");
    CHECK(strstr(err.text, "rank 1 calls reduce_scatter of 4 f32, MAX (collective 3)"));
    ctrun_group_close(group);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return 0;
}

static struct ct_board shared_board;

static int fail_once(void *context, const char *key, const char *text,
                     char first[CT_NOTE_MAX])
{
    static int tries;

    return tries++ == 0 ? -ENOTCONN : shared_board.put_first(context, key, text, first);
}

RANKS_TEST_AROUND(calls_are_compared_again_once_the_store_answers, 2, begin, NULL)
{
    struct ct_group_place place = ranks_place(rank, NULL);
    char note[CT_NOTE_MAX];
    struct ctrun_group *group;
    struct ctrun_error err;

    shared_board = place.board;
    place.board.put_first = fail_once;
    group = open_group(&place);
    CHECK_OK(reduce(group, &err));
    CHECK(place.board.read(NULL, key_of(&place, "first/1"), note) == 0);
    CHECK_OK(reduce(group, &err));
    CHECK(place.board.read(NULL, key_of(&place, "first/2"), note) == 1);
    ctrun_group_close(group);
    return 0;
}

RANKS_TEST_AROUND(other_parts_are_a_mismatch, 2, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_parts parts = CTRUN_PARTS_INIT;
    const size_t counts[] = {1, 1 + (size_t)rank};
    struct ctrun_error err;
    void *in, *out;

    CHECK_OK(ctrun_group_alloc(group, 2 * sizeof(float), &in, &err));
    CHECK_OK(ctrun_group_alloc(group, 3 * sizeof(float), &out, &err));
    parts.counts = counts;
    expect(ctrun_all_gather_v(group, in, out, &parts, CTRUN_F32, NULL, &err),
           CTRUN_E_MISMATCH, &err, "all ranks must pass the same out_parts");
    ctrun_group_close(group);
    return 0;
}

/* A call that one rank is refused does not count: it has no counterpart. */
/* What the program captures and throws away on one rank alone is in no count. */
RANKS_TEST_AROUND(a_call_in_a_graph_has_no_number, 2, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    cudaStream_t stream;
    cudaGraph_t graph;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    if (rank == 0) {
        options.stream = stream;
        options.work = &work;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        CHECK_OK(ctrun_barrier(group, &options, &err));
        CHECK_OK(ctrun_work_wait_on(work, stream, &err));
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
    CHECK_OK(reduce(group, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return 0;
}

RANKS_TEST_AROUND(a_call_that_is_refused_has_no_number, 2, begin, NULL)
{
    struct ctrun_group *group = open_at(rank);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err;
    cudaStream_t stream;
    cudaGraph_t graph;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    if (rank == 0) {
        options.stream = stream;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        CHECK(ctrun_barrier(group, &options, &err) == CTRUN_E_UNSUPPORTED);
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
    CHECK_OK(reduce(group, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return 0;
}

/* ---- Data ---------------------------------------------------------------------------------- */

enum {
    MOST = 12 /* floats of each block */
};

/* Blocks of the device, and what the host puts there and takes from there. */
struct blocks {
    struct ctrun_group *group;
    int rank, size;
    float *in, *out;
    float host[MOST];
};

static struct blocks make_blocks(struct ctrun_group *group)
{
    struct blocks blocks = {.group = group,
                            .rank = ctrun_group_rank(group),
                            .size = ctrun_group_size(group)};
    void *at[2];
    struct ctrun_error err;

    for (int i = 0; i < 2; i++)
        CHECK_OK(ctrun_group_alloc(group, sizeof blocks.host, &at[i], &err));
    blocks.in = at[0];
    blocks.out = at[1];
    return blocks;
}

/* Element e of what `from` has for `to`. */
static float value(int from, int to, size_t e)
{
    return (float)(100 * from + 10 * to) + (float)e + 1;
}

/* Fills `in` with parts for all members, and `out` with what no rank sends. */
static void fill(struct blocks *blocks, const size_t *counts)
{
    size_t at = 0;
    struct ctrun_error err;

    for (int i = 0; i < MOST; i++)
        blocks->host[i] = -1;
    CHECK_OK(ct_group_copy(blocks->group, blocks->out, blocks->host,
                           sizeof blocks->host, NULL, &err));
    for (int to = 0; to < blocks->size; to++)
        for (size_t e = 0; e < counts[to]; e++)
            blocks->host[at++] = value(blocks->rank, to, e);
    CHECK_OK(ct_group_copy(blocks->group, blocks->in, blocks->host, sizeof blocks->host,
                           NULL, &err));
}

/* `out` has counts[from] elements of each member, that it had for `to`, and no more. */
static void check(struct blocks *blocks, const size_t *counts, int to)
{
    size_t at = 0;
    struct ctrun_error err;

    CHECK_OK(ct_group_copy(blocks->group, blocks->host, blocks->out,
                           sizeof blocks->host, NULL, &err));
    for (int from = 0; from < blocks->size; from++)
        for (size_t e = 0; e < counts[from]; e++)
            CHECK(blocks->host[at++] == value(from, to, e));
    while (at < MOST)
        CHECK(blocks->host[at++] == -1);
}

RANKS_TEST_AROUND(parts_of_any_length_go_where_they_belong, RANKS, begin, NULL)
{
    static const size_t none[RANKS], equal[RANKS] = {2, 2, 2}, own[RANKS] = {1, 0, 3};
    struct blocks blocks = make_blocks(open_at(rank));
    struct ctrun_parts from = CTRUN_PARTS_INIT, to = CTRUN_PARTS_INIT;
    size_t one[RANKS] = {0}, mixed[RANKS];
    struct ctrun_error err;

    fill(&blocks, equal);
    CHECK_OK(ctrun_gather(blocks.group, blocks.in, rank == 1 ? blocks.out : NULL, 2,
                          CTRUN_F32, 1, NULL, &err));
    check(&blocks, rank == 1 ? equal : none, 0);
    fill(&blocks, equal);
    CHECK_OK(ctrun_scatter(blocks.group, rank == 2 ? blocks.in : NULL, blocks.out, 2,
                           CTRUN_F32, 2, NULL, &err));
    one[2] = 2;
    check(&blocks, one, rank);
    fill(&blocks, own);
    to.counts = own;
    CHECK_OK(ctrun_all_gather_v(blocks.group, blocks.in + (rank == 2), blocks.out, &to,
                                CTRUN_F32, NULL, &err));
    CHECK_OK(ct_group_copy(blocks.group, blocks.host, blocks.out, 4 * sizeof(float),
                           NULL, &err));
    CHECK(blocks.host[0] == value(0, 0, 0));
    for (size_t e = 0; e < 3; e++)
        CHECK(blocks.host[1 + e] == value(2, 2, e));
    for (int i = 0; i < RANKS; i++)
        mixed[i] = (size_t)(rank + i) % RANKS;
    fill(&blocks, mixed);
    from.counts = to.counts = mixed;
    CHECK_OK(ctrun_all_to_all_v(blocks.group, blocks.in, &from, blocks.out, &to,
                                CTRUN_F32, NULL, &err));
    check(&blocks, mixed, rank);
    ctrun_group_close(blocks.group);
    return 0;
}

RANKS_TEST_AROUND(minimum_and_product_are_those_of_all_ranks, RANKS, begin, NULL)
{
    static const size_t counts[RANKS] = {1, 1, 1};
    struct blocks blocks = make_blocks(open_at(rank));
    struct ctrun_error err;

    for (int is_product = 0; is_product < 2; is_product++) {
        fill(&blocks, counts);
        CHECK_OK(ctrun_all_reduce(blocks.group, blocks.in, blocks.out, RANKS, CTRUN_F32,
                                  is_product ? CTRUN_PROD : CTRUN_MIN, NULL, &err));
        CHECK_OK(ct_group_copy(blocks.group, blocks.host, blocks.out,
                               sizeof blocks.host, NULL, &err));
        for (int i = 0; i < RANKS; i++)
            CHECK(blocks.host[i] ==
                  (is_product ? value(0, i, 0) * value(1, i, 0) * value(2, i, 0)
                              : value(0, i, 0)));
        CHECK(blocks.host[RANKS] == -1);
    }
    ctrun_group_close(blocks.group);
    return 0;
}

/* ---- Opening and splitting ----------------------------------------------------------------- */

/* The others wait in NCCL, which does not tell them. */
RANKS_TEST_AROUND(who_cannot_open_tells_the_others, RANKS, begin, NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;

    options.backend = "nccl";
    options.timeout_ms = LONG_MS;
    if (rank == 1)
        fake_nccl.refuse_init = ncclSystemError;
    expect(ct_group_open(&group, &place, &options, &err), -EIO, &err,
           rank == 1 ? "nccl: open: a fake NCCL error"
                     : "rank 1: nccl: open: a fake NCCL error");
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* The others may continue without this rank: for them its failure is an abort. */
RANKS_TEST_AROUND(who_cannot_open_ends_the_call_of_those_who_may_continue, RANKS, begin,
                  NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = place_that_survives(rank);
    struct ctrun_group *group;
    struct ctrun_error err;

    options.backend = "nccl";
    options.timeout_ms = LONG_MS;
    if (rank == 1)
        fake_nccl.refuse_init = ncclSystemError;
    expect(ct_group_open(&group, &place, &options, &err),
           rank == 1 ? -EIO : CTRUN_E_ABORTED, &err, "nccl: open: a fake NCCL error");
    CHECK(rank == 1 || strstr(err.text, "rank 1: "));
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

static int split(struct ctrun_group **out, struct ctrun_group *whole, int rank,
                 int color, const char *backend, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = ranks_place(rank, NULL);

    options.backend = backend;
    options.timeout_ms = LONG_MS;
    return ct_group_split(out, &place, whole, color, &options, err);
}

/* The members are these ranks, in this order also for NCCL. */
static void check_members(struct ctrun_group *part, const int *ranks, int size)
{
    int mine = ranks[ctrun_group_rank(part)], all[5];
    struct ctrun_error err;

    CHECK(ctrun_group_size(part) == size);
    CHECK_OK(ctrun_all_gather(part, &mine, all, 1, CTRUN_I32, NULL, &err));
    CHECK(memcmp(all, ranks, (size_t)size * sizeof *all) == 0);
}

/* Makes a call that is recorded, but never runs. */
static void record_barrier(struct ctrun_group *group)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    cudaStream_t stream;
    cudaGraph_t graph;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    options.stream = stream;
    options.work = &work;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    CHECK_OK(ctrun_barrier(group, &options, &err));
    CHECK_OK(ctrun_work_wait_on(work, stream, &err));
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

struct splitting {
    int version;
    const char *backend; /* of the parts */
    bool has_graph;      /* rank 1 has one with calls of the whole group */
    int by_nccl;         /* splits that NCCL makes */
};

/* {0, 2, 4} and {1, 3}; the whole group closes first. */
static int split_in_two(int rank, void *context)
{
    static const int even[] = {0, 2, 4}, odd[] = {1, 3};
    const struct splitting *how = context;
    struct ctrun_group *whole, *part;
    struct ctrun_error err;

    fake_nccl.version = how->version;
    whole = open_at(rank);
    if (how->has_graph && rank == 1)
        record_barrier(whole);
    CHECK_OK(split(&part, whole, rank, rank % 2, how->backend, &err));
    CHECK(!fake_counts() || fake_nccl.splits == how->by_nccl);
    CHECK_OK(reduce(whole, &err));
    ctrun_group_close(whole);
    check_members(part, rank % 2 ? odd : even, rank % 2 ? 2 : 3);
    ctrun_group_close(part);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

TEST_AROUND(a_group_splits_into_two_that_are_apart, begin, NULL)
{
    struct splitting ways[] = {{0, "nccl", false, 1},
                               {21800, "nccl", false, 0}, /* an older NCCL */
                               {0, "nccl", true, 0},
                               {0, "host", false, 0}};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        assert_int_equal(ranks_run(5, split_in_two, &ways[i]), 0);
}

/* A part of a part, too; each has members that leave notes. */
RANKS_TEST_AROUND(a_rank_may_be_in_no_part, 4, begin, NULL)
{
    static const int first[] = {0, 2, 3}, second[] = {2, 3};
    struct ctrun_group *whole = open_at(rank), *part, *again;
    struct ctrun_error err;

    CHECK_OK(split(&part, whole, rank, rank == 1 ? CTRUN_SPLIT_NONE : 5, "nccl", &err));
    CHECK(!part == (rank == 1) && (!fake_counts() || fake_nccl.splits == 1));
    if (part) {
        check_members(part, first, 3);
        CHECK_OK(split(&again, part, rank, rank ? 0 : CTRUN_SPLIT_NONE, "nccl", &err));
        CHECK(!again == (rank == 0) && (!fake_counts() || fake_nccl.splits == 2));
        if (again) {
            check_members(again, second, 2);
            if (rank == 3)
                ctrun_group_abort(again);
            expect(reduce(again, &err), CTRUN_E_ABORTED, &err, "rank 3 aborted");
            ctrun_group_close(again);
        }
    }
    CHECK_OK(reduce(whole, &err)); /* another group's end does not concern it */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(split(&again, whole, rank, rank % 2, "nccl", &err));
        CHECK_OK(reduce(again, &err));
        ctrun_group_close(again);
    }
    ctrun_group_close(part);
    ctrun_group_close(whole);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* Also of a group that is opened in another way. */
RANKS_TEST_AROUND(streams_are_urgent_and_thread_blocks_as_asked, 2, begin, NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group, *part;
    struct ctrun_error err;
    static const int own[] = {0};

    options.backend = "nccl";
    for (int i = 0; i < 2; i++) {
        setenv("CTRUN_NCCL_RANKS_PER_ROOT", i ? "1" : "2", 1);
        CHECK_OK(ct_group_open(&group, &place, &options, &err));
        CHECK(fake_nccl.min_ctas == INT_MIN && fake_nccl.max_ctas == INT_MIN);
        ctrun_group_close(group);
        options.min_ctas = 2;
        options.max_ctas = 8;
        CHECK_OK(ct_group_open(&group, &place, &options, &err));
        CHECK(fake_nccl.min_ctas == 2 && fake_nccl.max_ctas == 8);
        options.min_ctas = 0;
        options.max_ctas = 4;
        CHECK_OK(ct_group_split(&part, &place, group, 0, &options, &err));
        CHECK(fake_nccl.min_ctas == INT_MIN && fake_nccl.max_ctas == 4);
        ctrun_group_close(part);
        options.max_ctas = 0;
        if (i == 0)
            ctrun_group_close(group);
    }
    CHECK(fake_nccl.urgent == 6);
    place.ranks = own;
    place.rank_count = 1;
    place.epoch = 1;
    if (rank == 0) {
        ct_group_end(group, CTRUN_E_ABORTED, "a rank is lost");
        CHECK_OK(ct_group_shrink(&part, &place, group, NULL, &err));
        CHECK(fake_nccl.min_ctas == 2 && fake_nccl.max_ctas == 8);
        ctrun_group_close(part);
    }
    ctrun_group_close(group);
    options.min_ctas = 3;
    options.max_ctas = 2;
    expect(ct_group_open(&group, &place, &options, &err), -EINVAL, &err,
           "min_ctas is 3 and max_ctas 2");
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* Rank 0 is refused before the ranks meet, while rank 1 waits for it, and calls again. */
RANKS_TEST_AROUND(wrong_options_of_one_end_no_group, 2, begin, NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group = open_group(&place), *part;
    struct ctrun_error err;

    options.backend = "nccl";
    options.timeout_ms = LONG_MS;
    options.min_ctas = 3;
    options.max_ctas = 2;
    if (rank == 0) {
        expect(ct_group_split(&part, &place, group, 0, &options, &err), -EINVAL, &err,
               "min_ctas is 3 and max_ctas 2");
        expect(split(&part, group, rank, 0, "ncll", &err), -EINVAL, &err, "'ncll'");
    }
    CHECK_OK(split(&part, group, rank, 0, "nccl", &err));
    CHECK_OK(reduce(part, &err));
    ctrun_group_close(part);
    for (int i = 0; i < 6; i++) { /* until the name is nearly too long */
        CHECK_OK(split(&part, group, rank, 1000000000, "host", &err));
        ctrun_group_close(group);
        group = part;
    }
    if (rank == 0)
        expect(split(&part, group, rank, 1000000000, "host", &err), -ENAMETOOLONG, &err,
               "split a group that was split less often");
    CHECK_OK(split(&part, group, rank, 0, "host", &err));
    CHECK_OK(reduce(part, &err));
    ctrun_group_close(part);
    ctrun_group_close(group);
    return 0;
}

RANKS_TEST_AROUND(who_cannot_split_ends_the_group_of_all, RANKS, begin, NULL)
{
    struct ctrun_group *whole = open_at(rank), *part;
    struct ctrun_error err;

    if (rank == 1)
        fake_nccl.refuse_split = ncclSystemError;
    for (int i = 0; i < 2; i++)
        expect(split(&part, whole, rank, rank - 1, "nccl", &err), -EIO, &err,
               "rank 1: nccl: split: a fake NCCL error");
    ctrun_group_close(whole);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* Rank 1 fails before it asks NCCL to split, or NCCL refuses. */
static int fail_to_split(int rank, void *context)
{
    const bool *is_refused = context;
    struct ct_group_place place = place_that_survives(rank);
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *whole = open_group(&place), *part;
    struct ctrun_error err;

    options.backend = "nccl";
    options.timeout_ms = LONG_MS;
    if (rank == 1 && *is_refused)
        fake_nccl.refuse_split = ncclSystemError;
    if (rank == 1 && !*is_refused)
        place.device = 9; /* there is none */
    for (int i = 0; i < 2; i++)
        expect(ct_group_split(&part, &place, whole, rank - 1, &options, &err),
               rank != 1     ? CTRUN_E_ABORTED
               : *is_refused ? -EIO
                             : CTRUN_E_UNSUPPORTED,
               &err, *is_refused ? "rank 1: nccl: split: a fake NCCL error" : "GPU");
    ctrun_group_close(whole);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

TEST_AROUND(who_cannot_split_ends_the_group_of_those_who_may_continue, begin, NULL)
{
    for (int is_refused = 0; is_refused < 2; is_refused++)
        assert_int_equal(ranks_run(RANKS, fail_to_split, &(bool){is_refused}), 0);
}

static void *abort_during_split(void *context)
{
    while (!fake_nccl.splits)
        sched_yield(); /* ranks_run() has a deadline */
    ctrun_group_abort(context);
    return NULL;
}

RANKS_TEST_AROUND(an_abort_ends_a_split, RANKS, begin, NULL)
{
    struct ctrun_group *whole = open_at(rank), *part;
    struct ctrun_error err;
    pthread_t thread;

    fake_nccl.split_polls = -1;
    CHECK(rank != 2 || pthread_create(&thread, NULL, abort_during_split, whole) == 0);
    expect(split(&part, whole, rank, rank - 1, "nccl", &err), CTRUN_E_ABORTED, &err,
           "rank 2 aborted the group");
    CHECK(!part);
    CHECK(rank != 2 || pthread_join(thread, NULL) == 0);
    ctrun_group_close(whole);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Memory of both kinds, and calls with data of the host and of the device. */
static int use_group(struct ctrun_group *group, cudaStream_t stream,
                     struct ctrun_error *err)
{
    struct ctrun_work *work;
    void *small, *large;
    int rc;

    if ((rc = ctrun_group_alloc(group, COUNT * sizeof(float), &small, err)) < 0 ||
        (rc = ctrun_group_alloc(group, LARGE, &large, err)) < 0 ||
        (rc = reduce(group, err)) < 0 ||
        (rc = ctrun_broadcast(group, small, large, COUNT, CTRUN_F32, 1,
                              IN_BACKGROUND(&work), err)) < 0 ||
        (rc = ctrun_work_wait_on(work, stream, err)) < 0 ||
        (rc = ctrun_all_to_all(group, large, (float *)large + RANKS, 1, CTRUN_F32, NULL,
                               err)) < 0)
        return rc;
    return ctrun_group_free(group, large, err);
}

static int live(int rank, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *whole = NULL, *part = NULL;
    cudaStream_t stream = NULL;
    int rc;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess ||
          cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    options.backend = "nccl";
    options.timeout_ms = WAIT_MS;
    if ((rc = ct_group_open(&whole, &place, &options, err)) == 0 &&
        (rc = use_group(whole, stream, err)) == 0 &&
        (rc = ct_group_split(&part, &place, whole, rank < 2 ? 0 : CTRUN_SPLIT_NONE,
                             &options, err)) == 0 &&
        part)
        rc = reduce(part, err);
    if (rc < 0)
        ctrun_group_abort(whole);
    if (rc < 0)
        ctrun_group_abort(part);
    ctrun_group_close(part);
    ctrun_group_close(whole);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return rc;
}

/* The n-th call of rank 0 fails. Returns 2 if it made fewer. */
static int live_with_fault(int rank, void *context)
{
    const int *at = context;
    struct ctrun_error err = {.text = ""};
    bool is_explained;
    int rc, calls;

    (void)fake_fail_at(rank ? 0 : *at);
    rc = live(rank, &err);
    calls = fake_fail_at(0);
    CHECK(rc <= 0 && (rc == 0 || err.code == rc));
    /* NCCL may end another rank's call before rank 0 has said why. */
    is_explained = strstr(err.text, "fake") || (rank && strstr(err.text, "rank 0"));
    if (rc < 0 && !is_explained)
        fprintf(stderr, "rank %d got %d: %s\n", rank, rc, err.text);
    CHECK(rc == 0 || is_explained);
    CHECK(fake_nccl.blocks == 0 && fake_nccl.registered == 0);
    return rank == 0 && calls < *at ? 2 : 0;
}

TEST_AROUND(a_fault_at_any_call_is_told_to_all_and_leaves_nothing, begin, NULL)
{
    const char *every = getenv("CTRUN_TEST_EVERY_FAULT");
    int statuses[RANKS] = {0};
    int at = 0;

    if (!every)
        print_message("every 7th call only; CTRUN_TEST_EVERY_FAULT=1: each\n");
    do {
        at += every ? 1 : 7;
        (void)ranks_finish(ranks_start(RANKS, live_with_fault, &at), statuses);
        for (int i = 0; i < RANKS; i++)
            if (statuses[i] != 0 && (i > 0 || statuses[i] != 2 << 8))
                fail_msg("fault %d, rank %d: %x", at, i, (unsigned)statuses[i]);
    } while (statuses[0] == 0 && at < 5000);
    assert_in_range(at, 100, 4999);
}
