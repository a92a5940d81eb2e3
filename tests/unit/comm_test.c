/* SPDX-License-Identifier: Apache-2.0 */
/* What groups compute: every call, in groups of 1 to 8 processes, over each kind of wire. */
#include <string.h>
#include <errno.h>

#include "tests/lib/ranks.h"
#include "tests/lib/test.h"

/* How the ranks are spread over hosts. */
enum wire {
    WIRE_SHM,
    WIRE_TCP,
    WIRE_MIXED,
    WIRES
};

struct world {
    int size;
    enum wire wire;
};

static const char *host_of(enum wire wire, int rank)
{
    /* Mixed: hosts of unequal size, whose members are not next to each other. */
    static const char *const hosts[] = {"a", "b", "a", "c", "a", "b", "c", "c"};

    return wire == WIRE_MIXED ? hosts[rank] : NULL;
}

static struct ctrun_group *open_world(int rank, const struct world *world)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.timeout_ms = 30000;
    options.shm = world->wire != WIRE_TCP;
    return ranks_open(rank, host_of(world->wire, rank), &options);
}

static void in_all_worlds(int largest, ranks_fn *body)
{
    for (int size = 1; size <= largest; size++) {
        for (int wire = 0; wire < WIRES; wire++) {
            struct world world = {size, (enum wire)wire};
            if (ranks_run(size, body, &world) != 0)
                fail_msg("%d ranks, wire %d", size, wire);
        }
    }
}

/* Small integers: every order of additions gives the same float. */
static float value_of(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 31) - 15;
}

static const size_t counts[] = {0, 1, 3, 17, 1000, 1017, 2049, 40000, 200003};

static void check_sum(struct ctrun_group *group, int rank, float *data, size_t count)
{
    int size = ctrun_group_size(group);
    struct ctrun_error err;

    for (size_t i = 0; i < count; i++)
        data[i] = value_of(rank, i);
    CHECK_OK(ctrun_all_reduce(group, data, count, CTRUN_F32, CTRUN_SUM, &err));
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int r = 0; r < size; r++)
            want += value_of(r, i);
        CHECK(data[i] == want);
    }
}

static int sums(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
    float *data = calloc(200003, sizeof *data);
    struct ctrun_error err;
    void *shared;

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        check_sum(group, rank, data, counts[c]);
    CHECK_OK(ctrun_group_alloc(group, 200003 * sizeof *data + 8, &shared, &err));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        check_sum(group, rank, shared, counts[c]);
        check_sum(group, rank, (float *)shared + 1,
                  counts[c]); /* unaligned for vectors */
        /* One rank elsewhere: all must take the way round. */
        check_sum(group, rank, rank == 0 ? data : shared, counts[c]);
    }
    free(data);
    ctrun_group_close(group);
    return 0;
}

static void all_reduce_sums_in_every_world(void **state)
{
    (void)state;
    in_all_worlds(8, sums);
}

static int averages(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
    int size = ctrun_group_size(group);
    float *data = calloc(5003, sizeof *data);
    struct ctrun_error err;
    uint8_t byte = 1;

    for (size_t i = 0; i < 5003; i++)
        data[i] = (float)(rank + 1) * (float)size;
    CHECK_OK(ctrun_all_reduce(group, data, 5003, CTRUN_F32, CTRUN_AVG, &err));
    for (size_t i = 0; i < 5003; i++)
        CHECK(data[i] == (float)(size * (size + 1) / 2));
    CHECK(ctrun_all_reduce(group, &byte, 1, CTRUN_U8, CTRUN_AVG, &err) ==
          CTRUN_E_UNSUPPORTED);
    free(data);
    ctrun_group_close(group);
    return 0;
}

static void averages_divide_by_the_size_of_the_group(void **state)
{
    (void)state;
    in_all_worlds(5, averages);
}

/* Values whose sum depends on the order: all ranks must still get the same bits. */
static int same_bits(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
    int size = ctrun_group_size(group);
    const size_t count = 30011;
    float *data = calloc(count, sizeof *data);
    float *all = calloc(count * (size_t)size, sizeof *all);
    struct ctrun_error err;
    unsigned seed = 1234u + (unsigned)rank;

    for (size_t n = 11; n <= count; n = n * 50 > count && n < count ? count : n * 50) {
        for (size_t i = 0; i < n; i++)
            data[i] = (float)rand_r(&seed) / 1e3f * (i % 3 ? 1.0f : -1e-4f);
        CHECK_OK(ctrun_all_reduce(group, data, n, CTRUN_F32, CTRUN_SUM, &err));
        CHECK_OK(ctrun_all_gather(group, data, all, n, CTRUN_F32, &err));
        for (int r = 0; r < size; r++)
            CHECK(memcmp(all + (size_t)r * n, data, n * sizeof *data) == 0);
    }
    free(data);
    free(all);
    ctrun_group_close(group);
    return 0;
}

static void results_are_bit_equal_on_all_ranks(void **state)
{
    (void)state;
    in_all_worlds(6, same_bits);
}

static int broadcasts(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
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
                CHECK_OK(ctrun_broadcast(group, at, count, CTRUN_I64, root, &err));
                for (size_t i = 0; i < count; i++)
                    CHECK(at[i] == (int64_t)i * 1000003 + root);
            }
        }
    }
    free(data);
    ctrun_group_close(group);
    return 0;
}

static void broadcast_gives_everyone_the_roots_data(void **state)
{
    (void)state;
    in_all_worlds(6, broadcasts);
}

static int gathers(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
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
            CHECK_OK(ctrun_all_gather(group, from, out, count, CTRUN_F16, &err));
            for (int r = 0; r < size; r++)
                for (size_t i = 0; i < count; i++)
                    CHECK(out[(size_t)r * count + i] == (uint16_t)(i * 3 + (size_t)r));
        }
    }
    free(in);
    free(out);
    ctrun_group_close(group);
    return 0;
}

static void all_gather_puts_the_parts_in_rank_order(void **state)
{
    (void)state;
    in_all_worlds(6, gathers);
}

/* Nobody leaves a barrier before all have entered it. */
static int barriers(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
    int size = ctrun_group_size(group);
    struct ctrun_error err;

    for (int i = 1; i <= 20; i++) {
        ranks_signal(0);
        CHECK_OK(ctrun_barrier(group, &err));
        ranks_await(0, (unsigned)(i * size)); /* true at once, or the barrier leaks */
        CHECK_OK(ctrun_barrier(group, &err));
    }
    ctrun_group_close(group);
    return 0;
}

static void barrier_holds_until_all_have_come(void **state)
{
    (void)state;
    in_all_worlds(5, barriers);
}

static int around_the_ring(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
    int size = ctrun_group_size(group);
    int right = (rank + 1) % size;
    int left = (rank + size - 1) % size;
    static unsigned char data[100001];
    struct ctrun_error err;

    if (size == 1)
        CHECK(ctrun_send(group, data, 1, 0, &err) == -EINVAL);
    for (size_t bytes = 1; size > 1 && bytes <= sizeof data; bytes = bytes * 30 + 1) {
        memset(data, rank, bytes);
        if (rank == 0)
            CHECK_OK(ctrun_send(group, data, bytes, right, &err));
        CHECK_OK(ctrun_recv(group, data, bytes, left, &err));
        for (size_t i = 0; i < bytes; i++)
            CHECK(data[i] == 0); /* of rank 0 */
        if (rank != 0)
            CHECK_OK(ctrun_send(group, data, bytes, right, &err));
        CHECK_OK(ctrun_barrier(group, &err)); /* mixes with collectives */
    }
    ctrun_group_close(group);
    return 0;
}

static void a_message_goes_round_all_ranks(void **state)
{
    (void)state;
    in_all_worlds(6, around_the_ring);
}

static int background(int rank, void *context)
{
    struct ctrun_group *group = open_world(rank, context);
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
        CHECK_OK(ctrun_all_reduce_start(group, data[i], sizes[i], CTRUN_F32, CTRUN_SUM,
                                        &works[i], &err));
    }
    /* A blocking call comes after them, on every rank. */
    CHECK_OK(ctrun_all_reduce(group, &tail, 1, CTRUN_F32, CTRUN_SUM, &err));
    CHECK(tail == (float)size);
    for (int i = 4; i >= 0; i--) { /* waiting in any order */
        CHECK_OK(ctrun_work_wait(works[i], &err));
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK(data[i][k] == (float)(size * (size - 1) / 2 + size * i));
        free(data[i]);
    }
    ctrun_group_close(group);
    return 0;
}

static void background_works_run_in_order(void **state)
{
    (void)state;
    in_all_worlds(6, background);
}

/* The last rank gives its data and goes away; the others get the result without it. */
static int goes_away(int rank, void *context)
{
    const size_t count =
        300001; /* several pieces a slice, the last ones short or empty */
    struct ctrun_group *group = ranks_open(rank, NULL, NULL);
    int size = ctrun_group_size(group);
    struct ctrun_work *work = NULL;
    struct ctrun_error err;
    void *block;
    float *data;

    (void)context;
    CHECK_OK(ctrun_group_alloc(group, count * sizeof *data, &block, &err));
    data = block;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            data[i] = (float)(rank + round) + (float)(i % 7);
        CHECK_OK(ctrun_barrier(group, &err));
        if (rank == size - 1) {
            CHECK_OK(ctrun_all_reduce_start(group, data, count, CTRUN_F32, CTRUN_SUM,
                                            &work, &err));
            ranks_await(0, (unsigned)((size - 1) * (round + 1)));
            CHECK_OK(ctrun_work_wait(work, &err));
        } else {
            CHECK_OK(ctrun_all_reduce(group, data, count, CTRUN_F32, CTRUN_SUM, &err));
            ranks_signal(0);
        }
        for (size_t i = 0; i < count; i++)
            CHECK(data[i] == (float)(size * (size - 1) / 2 + size * round) +
                                 (float)size * (float)(i % 7));
    }
    ctrun_group_close(group);
    return 0;
}

static void who_waits_reduces_the_share_of_a_rank_that_is_not_there(void **state)
{
    (void)state;
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
        groups[g] = ranks_open(rank, host_of(world->wire, rank), &options);
        CHECK(!groups[g] == (rank % 2 != g));
    }
    groups[2] = open_world(rank, world);
    for (int i = 0; i < 50; i++) { /* two groups of a rank, taken in turn */
        int64_t own = rank;
        int64_t all = rank;
        CHECK_OK(
            ctrun_all_reduce(groups[rank % 2], &own, 1, CTRUN_I64, CTRUN_SUM, &err));
        CHECK_OK(ctrun_all_reduce(groups[2], &all, 1, CTRUN_I64, CTRUN_SUM, &err));
        CHECK(own == (rank % 2 ? 9 : 6) && all == 15);
    }
    CHECK(ctrun_group_rank(groups[rank % 2]) == rank / 2);
    for (int g = 0; g < 3; g++)
        ctrun_group_close(groups[g]);
    return 0;
}

static void sub_groups_and_the_world_do_not_mix(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++) {
        struct world world = {6, (enum wire)wire};
        assert_int_equal(ranks_run(6, sub_groups, &world), 0);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    static const int descending[] = {1, 0};
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_error err;
    float x = 1;

    (void)state;
    ranks_new_store(1);
    place = ranks_place(0, NULL);
    assert_int_equal(ct_group_open(&group, &place, NULL, &err), 0);
    assert_int_equal(
        ctrun_all_reduce(group, &x, 1, (enum ctrun_dtype)99, CTRUN_SUM, &err), -EINVAL);
    assert_int_equal(ctrun_all_reduce(group, NULL, 1, CTRUN_F32, CTRUN_SUM, &err),
                     -EINVAL);
    assert_int_equal(ctrun_all_reduce(group, &x, SIZE_MAX, CTRUN_F32, CTRUN_SUM, &err),
                     -EINVAL);
    assert_int_equal(ctrun_broadcast(group, &x, 1, CTRUN_F32, 1, &err), -EINVAL);
    ctrun_group_close(group);
    options.backend = "smoke-signals";
    assert_int_equal(ct_group_open(&group, &place, &options, &err), -EINVAL);
    options.backend = NULL;
    options.ranks = descending;
    options.rank_count = 2;
    place.world_size = 2;
    assert_int_equal(ct_group_open(&group, &place, &options, &err), -EINVAL);
    assert_null(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sums_in_every_world),
        cmocka_unit_test(averages_divide_by_the_size_of_the_group),
        cmocka_unit_test(results_are_bit_equal_on_all_ranks),
        cmocka_unit_test(broadcast_gives_everyone_the_roots_data),
        cmocka_unit_test(all_gather_puts_the_parts_in_rank_order),
        cmocka_unit_test(barrier_holds_until_all_have_come),
        cmocka_unit_test(a_message_goes_round_all_ranks),
        cmocka_unit_test(background_works_run_in_order),
        cmocka_unit_test(who_waits_reduces_the_share_of_a_rank_that_is_not_there),
        cmocka_unit_test(sub_groups_and_the_world_do_not_mix),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
