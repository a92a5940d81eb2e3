/* SPDX-License-Identifier: Apache-2.0 */
/* The results of groups: every call, in groups of 1 to 8 processes, over each kind of wire. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/comm/comm.h"

enum {
    PERIOD = 31
};

/* Small integers, so every order of additions gives the same float. They repeat after PERIOD
 * elements. */
static float value_of(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % PERIOD) - 15;
}

/* One look at many bytes: the sanitizers take longer for each single one than the group does. */
static bool is_all(const unsigned char *data, int value, size_t bytes)
{
    return data[0] == value && memcmp(data, data + 1, bytes - 1) == 0;
}

static const size_t counts[] = {0, 1, 3, 17, 1000, 1017, 2049, 40000, 200003};

static size_t part(size_t count)
{
    return count < PERIOD ? count : PERIOD;
}

static void check_sum(struct ctrun_group *group, int rank, float *data, size_t count)
{
    int size = ctrun_group_size(group);
    struct ctrun_error err;
    float mine[PERIOD], want[PERIOD] = {0};

    for (size_t i = 0; i < PERIOD; i++) {
        mine[i] = value_of(rank, i);
        for (int r = 0; r < size; r++)
            want[i] += value_of(r, i);
    }
    for (size_t i = 0; i < count; i += PERIOD)
        memcpy(&data[i], mine, part(count - i) * sizeof *data);
    CHECK_OK(
        ctrun_all_reduce(group, data, data, count, CTRUN_F32, CTRUN_SUM, NULL, &err));
    for (size_t i = 0; i < count; i += PERIOD)
        CHECK(memcmp(&data[i], want, part(count - i) * sizeof *data) == 0);
}

WORLDS_TEST(all_reduce_sums_in_every_world, 8)
{
    int rank = ctrun_group_rank(group);
    float *data = calloc(200003, sizeof *data);
    struct ctrun_error err;
    void *shared;

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        check_sum(group, rank, data, counts[c]);
    CHECK_OK(ctrun_group_alloc(group, 200003 * sizeof *data + 8, &shared, &err));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        check_sum(group, rank, shared, counts[c]);
        /* Not aligned for vectors. */
        check_sum(group, rank, (float *)shared + 1, counts[c]);
        /* One rank has its data in other memory, so all must copy. */
        check_sum(group, rank, rank == 0 ? data : shared, counts[c]);
    }
    free(data);
}

/* Each rank frees in its own order; memory that is left can still be reduced in place. */
static void frees(struct ctrun_group *group, void *context)
{
    const int rank = ctrun_group_rank(group);
    void *blocks[4];
    struct ctrun_error err;
    int here = 0;

    for (int i = 0; i < 4; i++)
        CHECK_OK(ctrun_group_alloc(group, 70001 * sizeof(float), &blocks[i], &err));
    CHECK(ctrun_group_free(group, (char *)blocks[1] + 64, &err) == -EINVAL);
    CHECK(ctrun_group_free(group, &here, &err) == -EINVAL);
    CHECK_OK(ctrun_group_free(group, NULL, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ctrun_group_free(group, blocks[rank % 2 ? i : 1 - i], &err));
        check_sum(group, rank, blocks[2], 70001);
    }
    CHECK(ctrun_group_free(group, blocks[0], &err) == -EINVAL);
    if (rank == 0) /* the others keep the last one */
        CHECK_OK(ctrun_group_free(group, blocks[3], &err));
    check_sum(group, rank, rank == 0 ? blocks[2] : blocks[3], 70001);
    CHECK_OK(ctrun_group_alloc(group, 70001 * sizeof(float), &blocks[0], &err));
    CHECK(((float *)blocks[0])[7] == 0);
    check_sum(group, rank, blocks[0], 70001);
}

TEST(memory_of_a_group_may_be_freed)
{
    worlds_run(3, frees);
}

WORLDS_TEST(memory_that_is_refused_leaves_the_group, 3)
{
    const int rank = ctrun_group_rank(group);
    struct ctrun_error err;
    float data[8];
    void *block;

    CHECK(ctrun_group_alloc(group, SIZE_MAX, &block, &err) == -EINVAL);
    CHECK(!block);
    CHECK(ctrun_group_alloc(group, 0, &block, &err) == -EINVAL);
    check_sum(group, rank, data, 8);
    if (ctrun_group_size(group) > 1)
        return;
    ct_alloc_fail_at(1);
    CHECK(ctrun_group_alloc(group, 4096, &block, &err) == -ENOMEM);
    check_sum(group, rank, data, 8);
}

/* A call that has not begun has no number: the next one matches those of the others. */
WORLDS_TEST(a_call_that_could_not_begin_may_be_repeated, 3)
{
    const int rank = ctrun_group_rank(group);
    struct ctrun_work *work;
    struct ctrun_error err;
    float data[8];

    if (rank == 0) {
        ct_alloc_fail_at(1);
        CHECK(ctrun_barrier(group, IN_BACKGROUND(&work), &err) == -ENOMEM);
        CHECK(!work);
    }
    CHECK_OK(ctrun_barrier(group, IN_BACKGROUND(&work), &err));
    CHECK_OK(ctrun_work_wait(work, &err));
    check_sum(group, rank, data, 8);
}

WORLDS_TEST(averages_divide_by_the_size_of_the_group, 5)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    float *data = calloc(5003, sizeof *data);
    struct ctrun_error err;
    uint8_t byte = 1;

    for (size_t i = 0; i < 5003; i++)
        data[i] = (float)(rank + 1) * (float)size;
    CHECK_OK(
        ctrun_all_reduce(group, data, data, 5003, CTRUN_F32, CTRUN_AVG, NULL, &err));
    for (size_t i = 0; i < 5003; i++)
        CHECK(data[i] == (float)(size * (size + 1) / 2));
    CHECK(ctrun_all_reduce(group, &byte, &byte, 1, CTRUN_U8, CTRUN_AVG, NULL, &err) ==
          CTRUN_E_UNSUPPORTED);
    free(data);
}

/* The sum in rank order, for each wire and size. */
WORLDS_TEST(sums_are_made_in_rank_order_on_every_wire, 6)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    const size_t most = 300007;
    float *data = calloc(most, sizeof *data);
    struct ctrun_error err;

    for (size_t n = 11; n <= most; n = n * 50 > most && n < most ? most : n * 50) {
        for (size_t i = 0; i < n; i++)
            data[i] = worlds_rough_value(rank, i);
        CHECK_OK(
            ctrun_all_reduce(group, data, data, n, CTRUN_F32, CTRUN_SUM, NULL, &err));
        for (size_t i = 0; i < n; i++) {
            volatile float want = worlds_rough_value(
                0, i); /* rounded after each addition */
            for (int r = 1; r < size; r++)
                want = want + worlds_rough_value(r, i);
            CHECK(data[i] == want);
        }
    }
    free(data);
}

/* Each rank gives 40000: the sum does not fit into an f16, the average does. */
WORLDS_TEST(an_average_of_halves_does_not_overflow_in_between, 5)
{
    const size_t most = 50001;
    const uint16_t forty_thousand = 0x78e2;
    uint16_t *data = calloc(most, sizeof *data);
    struct ctrun_error err;

    for (size_t n = 7; n <= most; n = n == 7 ? most : most + 1) {
        for (size_t i = 0; i < n; i++)
            data[i] = forty_thousand;
        CHECK_OK(
            ctrun_all_reduce(group, data, data, n, CTRUN_F16, CTRUN_AVG, NULL, &err));
        for (size_t i = 0; i < n; i++)
            CHECK(data[i] == forty_thousand);
    }
    free(data);
}

/* As the header says of CTRUN_AVG. */
WORLDS_TEST(the_sum_of_an_average_of_wide_types_may_overflow, 3)
{
    const bool is_alone = ctrun_group_size(group) == 1;
    float single = 3e38f;
    double wide = 1e308;
    uint16_t brain = 0x7f61; /* 2.99e38 */
    struct ctrun_error err;

    CHECK_OK(
        ctrun_all_reduce(group, &single, &single, 1, CTRUN_F32, CTRUN_AVG, NULL, &err));
    CHECK_OK(
        ctrun_all_reduce(group, &wide, &wide, 1, CTRUN_F64, CTRUN_AVG, NULL, &err));
    CHECK_OK(
        ctrun_all_reduce(group, &brain, &brain, 1, CTRUN_BF16, CTRUN_AVG, NULL, &err));
    CHECK(single == (is_alone ? 3e38f : INFINITY));
    CHECK(wide == (is_alone ? 1e308 : (double)INFINITY));
    CHECK(brain == (is_alone ? 0x7f61 : 0x7f80));
}

WORLDS_TEST(broadcast_gives_everyone_the_roots_data, 6)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int64_t *data = calloc(70001, sizeof *data);
    struct ctrun_error err;
    void *shared;

    CHECK_OK(ctrun_group_alloc(group, 70001 * sizeof *data, &shared, &err));
    for (int round = 0; round < 2; round++) {
        int64_t *at = round ? shared : data;
        for (int root = 0; root < size; root++) {
            for (size_t count = 1; count <= 70001; count = count * 41 + 1) {
                for (size_t i = 0; i < count; i++)
                    at[i] = rank == root ? (int64_t)i * 1000003 + root : -1;
                CHECK_OK(
                    ctrun_broadcast(group, at, at, count, CTRUN_I64, root, NULL, &err));
                for (size_t i = 0; i < count; i++)
                    CHECK(at[i] == (int64_t)i * 1000003 + root);
            }
        }
    }
    free(data);
}

WORLDS_TEST(all_gather_puts_the_parts_in_rank_order, 6)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    const size_t most = 60007;
    uint16_t *in = calloc(most, sizeof *in);
    uint16_t *out = calloc(most * (size_t)size, sizeof *out);
    struct ctrun_error err;

    for (size_t count = 1; count <= most;
         count = count == most ? most + 1 : count * 60) {
        count = count > most / 2 ? most : count;
        for (int in_place = 0; in_place < 2; in_place++) {
            uint16_t *from = in_place ? out + (size_t)rank * count : in;
            for (size_t i = 0; i < count; i++)
                from[i] = (uint16_t)(i * 3 + (size_t)rank);
            CHECK_OK(ctrun_all_gather(group, from, out, count, CTRUN_F16, NULL, &err));
            for (int r = 0; r < size; r++)
                for (size_t i = 0; i < count; i++)
                    CHECK(out[(size_t)r * count + i] == (uint16_t)(i * 3 + (size_t)r));
        }
    }
    free(in);
    free(out);
}

/* No rank leaves a barrier before all have entered it. */
WORLDS_TEST(barrier_holds_until_all_have_come, 5)
{
    int size = ctrun_group_size(group);
    struct ctrun_error err;

    for (int i = 1; i <= 20; i++) {
        ranks_signal(0);
        CHECK_OK(ctrun_barrier(group, NULL, &err));
        ranks_await(0, (unsigned)(i * size)); /* true at once */
        CHECK_OK(ctrun_barrier(group, NULL, &err));
    }
}

WORLDS_TEST(a_message_goes_round_all_ranks, 6)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int right = (rank + 1) % size;
    int left = (rank + size - 1) % size;
    static unsigned char data[100001];
    struct ctrun_error err;

    if (size == 1)
        CHECK(ctrun_send(group, data, 1, CTRUN_U8, 0, NULL, &err) == -EINVAL);
    for (size_t bytes = 1; size > 1 && bytes <= sizeof data; bytes = bytes * 30 + 1) {
        memset(data, rank, bytes);
        if (rank == 0)
            CHECK_OK(ctrun_send(group, data, bytes, CTRUN_U8, right, NULL, &err));
        CHECK_OK(ctrun_recv(group, data, bytes, CTRUN_U8, left, NULL, &err));
        CHECK(is_all(data, 0, bytes)); /* of rank 0 */
        if (rank != 0)
            CHECK_OK(ctrun_send(group, data, bytes, CTRUN_U8, right, NULL, &err));
        CHECK_OK(ctrun_barrier(group, NULL, &err)); /* together with collectives */
    }
}

/* All ranks send before any of them receives, and more than a queue or a socket holds. */
WORLDS_TEST(all_may_send_before_they_receive, 4)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int right = (rank + 1) % size;
    int left = (rank + size - 1) % size;
    const size_t bytes = 16 << 20;
    unsigned char *out = malloc(bytes);
    unsigned char *in = malloc(bytes);
    struct ctrun_error err;
    float sum = 1;

    for (int round = 0; size > 1 && round < 2; round++) {
        memset(out, rank + round, bytes);
        memset(in, 0xff, bytes);
        CHECK_OK(ctrun_send(group, out, bytes, CTRUN_U8, right, NULL, &err));
        CHECK_OK(ctrun_send(group, out, 5, CTRUN_U8, right, NULL, &err));
        CHECK_OK(ctrun_recv(group, in, bytes, CTRUN_U8, left, NULL, &err));
        CHECK(is_all(in, left + round, bytes));
        CHECK_OK(ctrun_recv(group, in, 5, CTRUN_U8, left, NULL, &err));
    }
    CHECK_OK(ctrun_all_reduce(group, &sum, &sum, 1, CTRUN_F32, CTRUN_SUM, NULL, &err));
    CHECK(sum == (float)size);
    free(out);
    free(in);
}

WORLDS_TEST(background_works_run_in_order, 6)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    static const size_t sizes[] = {3, 50000, 1, 9000, 2100};
    float *data[5];
    struct ctrun_work *works[5];
    struct ctrun_error err;
    float tail = 1;

    for (int i = 0; i < 5; i++) {
        data[i] = calloc(sizes[i], sizeof(float));
        for (size_t k = 0; k < sizes[i]; k++)
            data[i][k] = (float)(rank + i);
        CHECK_OK(ctrun_all_reduce(group, data[i], data[i], sizes[i], CTRUN_F32,
                                  CTRUN_SUM, IN_BACKGROUND(&works[i]), &err));
    }
    /* A blocking call after them, on every rank. */
    CHECK_OK(
        ctrun_all_reduce(group, &tail, &tail, 1, CTRUN_F32, CTRUN_SUM, NULL, &err));
    CHECK(tail == (float)size);
    for (int i = 4; i >= 0; i--) { /* in reverse order */
        CHECK_OK(ctrun_work_wait(works[i], &err));
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK(data[i][k] == (float)(size * (size - 1) / 2 + size * i));
        free(data[i]);
    }
}

/* The last rank gives its data and leaves; the others get the result without it. */
static int goes_away(int rank, void *context)
{
    /* Several pieces a slice, the last ones short or empty. */
    const size_t count = 300001;
    struct ctrun_group *group = ranks_open(rank, NULL, NULL);
    int size = ctrun_group_size(group);
    struct ctrun_work *work = NULL;
    struct ctrun_error err;
    void *block;
    float *data;

    CHECK_OK(ctrun_group_alloc(group, count * sizeof *data, &block, &err));
    data = block;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            data[i] = (float)(rank + round) + (float)(i % 7);
        CHECK_OK(ctrun_barrier(group, NULL, &err));
        if (rank == size - 1) {
            CHECK_OK(ctrun_all_reduce(group, data, data, count, CTRUN_F32, CTRUN_SUM,
                                      IN_BACKGROUND(&work), &err));
            ranks_await(0, (unsigned)((size - 1) * (round + 1)));
            CHECK_OK(ctrun_work_wait(work, &err));
        } else {
            CHECK_OK(ctrun_all_reduce(group, data, data, count, CTRUN_F32, CTRUN_SUM,
                                      NULL, &err));
            ranks_signal(0);
        }
        for (size_t i = 0; i < count; i++)
            CHECK(data[i] == (float)(size * (size - 1) / 2 + size * round) +
                                 (float)size * (float)(i % 7));
    }
    ctrun_group_close(group);
    return 0;
}

TEST(who_waits_reduces_the_share_of_a_rank_that_is_not_there)
{
    for (int size = 2; size <= 4; size++)
        assert_int_equal(ranks_run(size, goes_away, NULL), 0);
}

static int sub_groups(int rank, void *context)
{
    const struct world *world = context;
    static const int even[] = {0, 2, 4};
    static const int odd[] = {1, 3, 5};
    struct ctrun_group *groups[3];
    struct ctrun_error err;

    for (int g = 0; g < 2; g++) {
        struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
        options.ranks = g ? odd : even;
        options.rank_count = 3;
        options.shm = world->wire != WIRE_TCP;
        groups[g] = ranks_open(rank, worlds_host_of(world->wire, rank), &options);
        CHECK(!groups[g] == (rank % 2 != g));
    }
    groups[2] = worlds_open(rank, world);
    for (int i = 0; i < 50; i++) { /* two groups of a rank in turn */
        int64_t own = rank;
        int64_t all = rank;
        CHECK_OK(ctrun_all_reduce(groups[rank % 2], &own, &own, 1, CTRUN_I64, CTRUN_SUM,
                                  NULL, &err));
        CHECK_OK(ctrun_all_reduce(groups[2], &all, &all, 1, CTRUN_I64, CTRUN_SUM, NULL,
                                  &err));
        CHECK(own == (rank % 2 ? 9 : 6) && all == 15);
    }
    CHECK(ctrun_group_rank(groups[rank % 2]) == rank / 2);
    for (int g = 0; g < 3; g++)
        ctrun_group_close(groups[g]);
    return 0;
}

TORCH_TEST(sub_groups_and_the_world_do_not_mix, "group_two_groups_interleaved")
{
    for (int wire = 0; wire < WIRES; wire++) {
        struct world world = {6, (enum wire)wire};
        assert_int_equal(ranks_run(6, sub_groups, &world), 0);
    }
}

TEST(wrong_arguments_are_refused)
{
    struct ctrun_parts parts = CTRUN_PARTS_INIT;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    static const int descending[] = {1, 0};
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_error err;
    float x = 1;

    ranks_new_store(1);
    place = ranks_place(0, NULL);
    assert_int_equal(ct_group_open(&group, &place, NULL, &err), 0);
    assert_int_equal(
        ctrun_all_reduce(group, &x, &x, 1, (enum ctrun_dtype)99, CTRUN_SUM, NULL, &err),
        -EINVAL);
    assert_int_equal(
        ctrun_all_reduce(group, &x, &x, 1, CTRUN_F32, (enum ctrun_op)99, NULL, &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "op 99"));
    assert_int_equal(
        ctrun_all_reduce(group, NULL, NULL, 1, CTRUN_F32, CTRUN_SUM, NULL, &err),
        -EINVAL);
    assert_int_equal(
        ctrun_all_reduce(group, &x, &x, SIZE_MAX, CTRUN_F32, CTRUN_SUM, NULL, &err),
        -EINVAL);
    parts.counts = &(size_t){1};
    parts.starts = &(size_t){SIZE_MAX}; /* the element before x */
    assert_int_equal(ctrun_all_gather_v(group, &x, &x, &parts, CTRUN_F32, NULL, &err),
                     -EINVAL);
    assert_int_equal(ctrun_broadcast(group, &x, &x, 1, CTRUN_F32, 1, NULL, &err),
                     -EINVAL);
    ctrun_group_close(group);
    options.backend = "smoke-signals";
    assert_int_equal(ct_group_open(&group, &place, &options, &err), -EINVAL);
    options.backend = NULL;
    options.shm = 7;
    assert_int_equal(ct_group_open(&group, &place, &options, &err), -EINVAL);
    assert_string_equal(err.text, "open group: shm is 7: must be 0 or 1");
    options.shm = 1;
    options.ranks = descending;
    options.rank_count = 2;
    place.world_size = 2;
    assert_int_equal(ct_group_open(&group, &place, &options, &err), -EINVAL);
    assert_null(group);
}

/* The lowest descriptor that is free. */
static rlim_t free_descriptor(void)
{
    const int fd = dup(STDERR_FILENO);

    close(fd);
    return (rlim_t)fd;
}

/* Opens the group with descriptors for `spare` more. */
static int open_with(struct ctrun_group **group, struct ct_group_place *place,
                     rlim_t spare, int shm, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct rlimit limit, few;
    int rc;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    few = limit;
    few.rlim_cur = free_descriptor() + spare;
    options.shm = shm;
    options.timeout_ms = 20000;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    rc = ct_group_open(group, place, &options, err);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return rc;
}

/* Rank 0 has one descriptor more at each try: the others meet it at the first that suffices. */
static int opens_with_few(int rank, int shm, int local_count, const char *last_refusal)
{
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_error err = {.text = ""}, before = err;
    struct ctrun_group *group;
    rlim_t spare = rank == 0 ? 0 : 100;
    int rc;

    place.local_count = local_count;
    while ((rc = open_with(&group, &place, spare++, shm, &err)) == -EMFILE) {
        CHECK(!group);
        before = err;
    }
    CHECK_OK(rc);
    if (rank == 0)
        CHECK(strstr(before.text, last_refusal));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    return 0;
}

RANKS_TEST(a_lack_of_descriptors_for_tcp_may_be_repeated, 3)
{
    return opens_with_few(
        rank, 0, 3,
        "a group of 3 members needs 7 more descriptors, 6 are free of the limit ");
}

RANKS_TEST(a_lack_of_descriptors_for_shared_memory_may_be_repeated, 3)
{
    return opens_with_few(
        rank, 1, 3,
        "a group of 3 members needs 3 more descriptors, 2 are free of the limit ");
}

/* Rank 2 is said to be on another node. */
RANKS_TEST(a_lack_of_descriptors_for_both_may_be_repeated, 3)
{
    return opens_with_few(
        rank, 1, 2,
        "a group of 3 members needs 8 more descriptors, 7 are free of the limit ");
}

/* The first tries of rank 0 fail; the last one meets the others. */
RANKS_TEST(a_refused_open_may_be_repeated, 2)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;

    options.backend = "smoke-signals";
    if (rank == 0)
        CHECK(ct_group_open(&group, &place, &options, &err) == -EINVAL);
    options.backend = NULL;
    options.timeout_ms = 20000;
    CHECK_OK(ct_group_open(&group, &place, &options, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    return 0;
}

static void *enter_barrier(void *group)
{
    struct ctrun_error err;
    int rc;

    ranks_signal(0);
    while ((rc = ctrun_barrier(group, NULL, &err)) == CTRUN_E_USAGE)
        sched_yield(); /* the call of rank 0's other thread is being refused */
    CHECK(rc == 0);
    return NULL;
}

/* Rank 0 has a thread in the barrier, and calls from another thread until that is refused; rank 1
 * calls the barrier only then. */
WORLD_TEST(a_second_thread_is_refused, 2)
{
    int rank = ctrun_group_rank(group);
    struct ctrun_error err;
    pthread_t thread;
    float x = 1;

    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, enter_barrier, group) == 0);
        ranks_await(0, 1);
        /* -EINVAL until the other thread is inside: the arguments are checked later. */
        while (ctrun_send(group, &x, 1, CTRUN_U8, 99, NULL, &err) == -EINVAL)
            sched_yield();
        CHECK(err.code == CTRUN_E_USAGE);
        ranks_signal(1);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        ranks_await(1, 1);
        CHECK_OK(ctrun_barrier(group, NULL, &err));
    }
    CHECK_OK(ctrun_all_reduce(group, &x, &x, 1, CTRUN_F32, CTRUN_SUM, NULL, &err));
    CHECK(x == 2);
}

/* ---- A store that takes everything and gives nothing ------------------------------------- */

static int take_value(void *context, const char *key, const void *value, size_t length,
                      uint64_t deadline_ms, struct ctrun_error *err)
{
    return 0;
}

static int give_no_value(void *context, const char *key, void **value, size_t *length,
                         uint64_t deadline_ms, struct ctrun_error *err)
{
    return CTRUN_E_TIMEOUT;
}

/* *context: whether the key is there. */
static int find_key(void *context, const char *key, uint64_t deadline_ms,
                    struct ctrun_error *err)
{
    return *(const int *)context;
}

static void open_by_such_a_store(int rank, int key_is_there, const char *want)
{
    const struct ct_group_place place = {.rank = rank,
                                         .world_size = 3,
                                         .key = "group",
                                         .bootstrap = {.context = &key_is_there,
                                                       .set = take_value,
                                                       .get = give_no_value,
                                                       .wait = find_key}};
    struct ctrun_group *group;
    struct ctrun_error err;

    assert_int_equal(ct_group_open(&group, &place, NULL, &err), CTRUN_E_TIMEOUT);
    if (!strstr(err.text, want))
        fail_msg("'%s' is not in: %s", want, err.text);
}

TEST(only_ranks_that_are_known_to_be_missing_are_named)
{
    open_by_such_a_store(1, CTRUN_E_TIMEOUT, "3 of 3 members did not connect: rank 0");
    open_by_such_a_store(1, -EPIPE, "the store does not answer");
    open_by_such_a_store(1, 0, "no answer in time from rank 0");
}

/* What a child does with the group, as its exit handlers may, does not reach the other ranks. */
static int fork_body(int rank, void *context)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err;
    int status;
    pid_t pid;

    options.shm = *(const int *)context;
    group = ranks_open(rank, "a", &options);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    if ((pid = fork()) == 0) {
        if (ctrun_barrier(group, NULL, &err) != CTRUN_E_USAGE ||
            !strstr(err.text, "barrier: this process was forked"))
            _exit(1);
        ctrun_group_abort(group);
        ctrun_group_close(group);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    return 0;
}

TEST(a_child_of_fork_does_not_use_the_group)
{
    for (int shm = 0; shm < 2; shm++)
        assert_int_equal(ranks_run(2, fork_body, &shm), 0);
}

WORLD_TEST(buffers_that_overlap_are_refused, 2)
{
    const int me = ctrun_group_rank(group);
    float x[8] = {0};
    struct ctrun_error err;

#define OVERLAPS(call) CHECK((call) == -EINVAL && strstr(err.text, "overlap"))
    OVERLAPS(ctrun_all_reduce(group, x, x + 1, 2, CTRUN_F32, CTRUN_SUM, NULL, &err));
    OVERLAPS(ctrun_reduce(group, x + 1, x, 2, CTRUN_F32, CTRUN_SUM, me, NULL, &err));
    OVERLAPS(ctrun_broadcast(group, x, x + 1, 2, CTRUN_F32, me, NULL, &err));
    OVERLAPS(ctrun_all_gather(group, x + 2 * (1 - me), x, 2, CTRUN_F32, NULL, &err));
    OVERLAPS(ctrun_reduce_scatter(group, x, x + 2 * (1 - me), 2, CTRUN_F32, CTRUN_SUM,
                                  NULL, &err));
    OVERLAPS(ctrun_all_to_all(group, x, x + 3, 2, CTRUN_F32, NULL, &err));
#undef OVERLAPS
    CHECK_OK(ctrun_all_reduce(group, x, x + 2, 2, CTRUN_F32, CTRUN_SUM, NULL, &err));
    CHECK_OK(ctrun_all_gather(group, x + 2 * me, x, 2, CTRUN_F32, NULL, &err));
}

static int usual_body(int rank, void *context)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const uint64_t usual_ms = options.timeout_ms;
    struct ctrun_group *group;

    (void)context;
    options.timeout_ms = 0;
    group = ranks_open(rank, "a", &options);
    CHECK(ct_group_timeout_ms(group) == usual_ms);
    ctrun_group_close(group);
    return 0;
}

TEST(no_deadline_stands_for_the_usual_one)
{
    assert_int_equal(ranks_run(2, usual_body, NULL), 0);
}
