/* SPDX-License-Identifier: Apache-2.0 */
/* The values are torch's (1.13, DistributedSampler and randperm). */
#include <errno.h>
#include <stdbool.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/include/ctrun.h"

static const struct {
    size_t n;
    int world;
    bool drop_last;
    bool shuffle;
    uint64_t seed;
    uint64_t epoch;
    size_t length;
    uint64_t indices[16]; /* rank 0's, then rank 1's, ... */
} dealt[] = {
    /* n, W, drop_last, shuffle, seed, epoch, length */
    {10, 3, false, false, 7, 0, 4, {0, 3, 6, 9, 1, 4, 7, 0, 2, 5, 8, 1}},
    {10, 3, false, false, 7, 1, 4, {0, 3, 6, 9, 1, 4, 7, 0, 2, 5, 8, 1}},
    {10, 3, true, false, 7, 0, 3, {0, 3, 6, 1, 4, 7, 2, 5, 8}},
    {10, 3, true, false, 7, 1, 3, {0, 3, 6, 1, 4, 7, 2, 5, 8}},
    {10, 3, false, true, 7, 0, 4, {5, 4, 9, 2, 0, 1, 6, 5, 3, 7, 8, 0}},
    {10, 3, false, true, 7, 1, 4, {3, 1, 4, 9, 5, 2, 7, 3, 0, 6, 8, 5}},
    {10, 3, true, true, 7, 0, 3, {5, 4, 9, 0, 1, 6, 3, 7, 8}},
    {10, 3, true, true, 7, 1, 3, {3, 1, 4, 5, 2, 7, 0, 6, 8}},
    {2, 5, false, false, 7, 0, 1, {0, 1, 0, 1, 0}},
    {2, 5, false, false, 7, 1, 1, {0, 1, 0, 1, 0}},
    {3, 8, false, true, 7, 0, 1, {0, 1, 2, 0, 1, 2, 0, 1}},
    {3, 8, false, true, 7, 1, 1, {0, 1, 2, 0, 1, 2, 0, 1}},
    {9, 3, true, true, 7, 0, 3, {0, 1, 3, 5, 7, 6, 8, 2, 4}},
    {9, 3, true, true, 7, 1, 3, {0, 6, 2, 5, 3, 8, 1, 7, 4}},
    {1, 4, false, true, 7, 0, 1, {0, 0, 0, 0}},
    {1, 4, false, true, 7, 1, 1, {0, 0, 0, 0}},
};

TEST(permutation_equals_randperm)
{
    static const uint64_t seed0[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    static const uint64_t seed1[] = {5, 6, 1, 2, 0, 8, 9, 3, 7, 4};
    static const uint64_t big[] = {35845, 27522, 33254, 23645, 11299};
    static uint64_t out[60000];

    ctrun_permutation(0, out, 10);
    assert_memory_equal(out, seed0, sizeof seed0);
    ctrun_permutation(1, out, 10);
    assert_memory_equal(out, seed1, sizeof seed1);
    ctrun_permutation((1ull << 32) + 1, out, 10); /* only the low 32 bits count */
    assert_memory_equal(out, seed1, sizeof seed1);
    ctrun_permutation(1, out, 60000);
    assert_memory_equal(out, big, sizeof big);
    ctrun_permutation(1, out, 0);
    ctrun_permutation(1, out, 1);
    assert_int_equal(out[0], 0);
}

static struct ctrun_sampler *sampler(size_t n, int rank, int world, uint64_t seed)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_sampler *out;

    options.count = n;
    options.rank = rank;
    options.world_size = world;
    options.seed = seed;
    assert_int_equal(ctrun_sampler_create(&out, &options, NULL), 0);
    return out;
}

TORCH_TEST(ranks_get_what_torch_deals, "vector sampler")
{
    for (size_t i = 0; i < sizeof dealt / sizeof *dealt; i++) {
        for (int rank = 0; rank < dealt[i].world; rank++) {
            struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
            struct ctrun_sampler *s;

            options.count = dealt[i].n;
            options.rank = rank;
            options.world_size = dealt[i].world;
            options.seed = dealt[i].seed;
            options.no_shuffle = !dealt[i].shuffle;
            options.drop_last = dealt[i].drop_last;
            assert_int_equal(ctrun_sampler_create(&s, &options, NULL), 0);
            assert_int_equal(ctrun_sampler_set_epoch(s, dealt[i].epoch, 0, NULL), 0);
            assert_int_equal(ctrun_sampler_length(s), dealt[i].length);
            assert_memory_equal(ctrun_sampler_indices(s),
                                dealt[i].indices + (size_t)rank * dealt[i].length,
                                dealt[i].length * sizeof(uint64_t));
            ctrun_sampler_destroy(s);
        }
    }
}

TORCH_TEST(mnist_sized_epoch_equals_torch,
           "vector sampler_60000_world2_rank1_seed1_epoch3")
{
    static const uint64_t first[] = {4165, 37862, 50241, 33190,
                                     9399, 15415, 14588, 22207};
    static const uint64_t last[] = {39153, 686, 22252, 41301};
    struct ctrun_sampler *s = sampler(60000, 1, 2, 1);

    assert_int_equal(ctrun_sampler_set_epoch(s, 3, 0, NULL), 0);
    assert_int_equal(ctrun_sampler_length(s), 30000);
    assert_memory_equal(ctrun_sampler_indices(s), first, sizeof first);
    assert_memory_equal(ctrun_sampler_indices(s) + 29996, last, sizeof last);
    ctrun_sampler_destroy(s);
}

/* After 2 ranks consumed 40 samples, 3 ranks see each of the other 60 once. */
TEST(restart_with_other_world_sees_the_rest_once)
{
    bool seen[100] = {false};
    struct ctrun_sampler *whole = sampler(100, 0, 1, 5);
    size_t total = 0;

    for (int rank = 0; rank < 3; rank++) {
        struct ctrun_sampler *s = sampler(100, rank, 3, 5);

        assert_int_equal(ctrun_sampler_set_epoch(s, 0, 40, NULL), 0);
        assert_int_equal(ctrun_sampler_length(s), 20);
        for (size_t i = 0; i < 20; i++) {
            uint64_t index = ctrun_sampler_indices(s)[i];

            assert_false(seen[index]);
            seen[index] = true;
            total++;
            assert_int_equal(index,
                             ctrun_sampler_indices(whole)[40 + i * 3 + (size_t)rank]);
        }
        ctrun_sampler_destroy(s);
    }
    assert_int_equal(total, 60);
    ctrun_sampler_destroy(whole);
}

/* Also with more ranks than samples that are left. */
TEST(resumed_epoch_is_the_one_that_was_not_interrupted)
{
    enum {
        COUNT = 13,
        WORLD = 4
    };

    for (int rank = 0; rank < WORLD; rank++) {
        struct ctrun_sampler *whole = sampler(COUNT, rank, WORLD, 5);
        struct ctrun_sampler *rest = sampler(COUNT, rank, WORLD, 5);
        const size_t length = ctrun_sampler_length(whole);

        for (size_t done = 0; done < length; done++) {
            assert_int_equal(ctrun_sampler_set_epoch(rest, 0, done * WORLD, NULL), 0);
            assert_int_equal(ctrun_sampler_length(rest), length - done);
            assert_int_equal(ctrun_sampler_real_length(rest),
                             ctrun_sampler_real_length(whole) - done);
            assert_memory_equal(ctrun_sampler_indices(rest),
                                ctrun_sampler_indices(whole) + done,
                                (length - done) * sizeof(uint64_t));
        }
        assert_int_equal(ctrun_sampler_real_length(whole),
                         rank == 0 ? length : length - 1);
        ctrun_sampler_destroy(whole);
        ctrun_sampler_destroy(rest);
    }
}

TEST(padding_is_from_the_beginning_of_the_order)
{
    struct ctrun_sampler *whole = sampler(10, 0, 1, 5);
    struct ctrun_sampler *s = sampler(10, 1, 2, 5);

    assert_int_equal(ctrun_sampler_set_epoch(s, 0, 7, NULL), 0);
    assert_int_equal(ctrun_sampler_length(s), 2); /* 3 samples are left for two ranks */
    assert_int_equal(ctrun_sampler_indices(s)[0], ctrun_sampler_indices(whole)[8]);
    assert_int_equal(ctrun_sampler_indices(s)[1], ctrun_sampler_indices(whole)[0]);
    assert_int_equal(ctrun_sampler_real_length(s), 1);
    ctrun_sampler_destroy(s);
    ctrun_sampler_destroy(whole);
}

TEST(start_behind_the_end_is_an_empty_epoch)
{
    struct ctrun_sampler *s = sampler(10, 2, 4, 0);

    assert_int_equal(ctrun_sampler_set_epoch(s, 1, 10, NULL), 0);
    assert_int_equal(ctrun_sampler_length(s), 0);
    assert_int_equal(ctrun_sampler_set_epoch(s, 1, SIZE_MAX, NULL), 0);
    assert_int_equal(ctrun_sampler_length(s), 0);
    ctrun_sampler_destroy(s);
}

/* As torch's sampler. */
TEST(an_empty_data_set_has_empty_epochs)
{
    struct ctrun_sampler *s = sampler(0, 1, 2, 0);

    assert_int_equal(ctrun_sampler_length(s), 0);
    assert_int_equal(ctrun_sampler_set_epoch(s, 1, 0, NULL), 0);
    assert_int_equal(ctrun_sampler_length(s), 0);
    ctrun_sampler_destroy(s);
}

static struct ctrun_sampler *any_order(size_t n, int rank, int world, uint64_t epoch,
                                       size_t start)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_sampler *s;

    options.count = n;
    options.rank = rank;
    options.world_size = world;
    options.seed = 9;
    options.any_order = true;
    assert_int_equal(ctrun_sampler_create(&s, &options, NULL), 0);
    assert_int_equal(ctrun_sampler_set_epoch(s, epoch, start, NULL), 0);
    return s;
}

TEST(any_order_is_a_permutation_of_every_size)
{
    enum {
        MOST = 300
    };

    for (size_t n = 1; n <= MOST; n++) {
        struct ctrun_sampler *s = any_order(n, 0, 1, n, 0);
        bool seen[MOST] = {false};

        assert_null(ctrun_sampler_indices(s));
        assert_int_equal(ctrun_sampler_length(s), n);
        for (size_t i = 0; i < n; i++) {
            uint64_t index = ctrun_sampler_index(s, i);
            assert_true(index < n);
            assert_false(seen[index]);
            seen[index] = true;
        }
        ctrun_sampler_destroy(s);
    }
}

/* Another world consumed 40 samples of the epoch; three ranks get the rest. */
TEST(any_order_does_not_depend_on_the_world)
{
    struct ctrun_sampler *whole = any_order(1000003, 0, 1, 4, 0);

    for (int rank = 0; rank < 3; rank++) {
        struct ctrun_sampler *s = any_order(1000003, rank, 3, 4, 40);
        for (size_t i = 0; i < 50; i++)
            assert_int_equal(ctrun_sampler_index(s, i),
                             ctrun_sampler_index(whole, 40 + i * 3 + (size_t)rank));
        ctrun_sampler_destroy(s);
    }
    ctrun_sampler_destroy(whole);
}

/* How many of 10,000 samples keep their position: about one in a shuffled order. */
TEST(any_order_changes_with_the_epoch)
{
    struct ctrun_sampler *a = any_order(10000, 0, 1, 1, 0);
    struct ctrun_sampler *b = any_order(10000, 0, 1, 2, 0);
    int same = 0, fixed = 0;

    for (size_t i = 0; i < 10000; i++) {
        same += ctrun_sampler_index(a, i) == ctrun_sampler_index(b, i);
        fixed += ctrun_sampler_index(a, i) == i;
    }
    assert_true(same < 10);
    assert_true(fixed < 10);
    ctrun_sampler_destroy(a);
    ctrun_sampler_destroy(b);
}

/* Their indices would need a terabyte. */
TEST(any_order_takes_no_memory_for_the_samples)
{
    struct ctrun_sampler *s = any_order((size_t)1 << 37, 3, 8, 0, 12345678901u);

    assert_true(ctrun_sampler_index(s, ctrun_sampler_length(s) - 1) < (uint64_t)1
                                                                          << 37);
    ctrun_sampler_destroy(s);
}

TEST(wrong_options_are_named)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_sampler *s;
    struct ctrun_error err;

    options.count = 5;
    options.rank = 2;
    options.world_size = 2;
    assert_int_equal(ctrun_sampler_create(&s, &options, &err), -EINVAL);
    assert_string_equal(
        err.text, "sampler: Invalid rank 2, rank should be in the interval [0, 1]");
    options.rank = -1;
    assert_int_equal(ctrun_sampler_create(&s, &options, &err), -EINVAL);
    options.rank = 0;
    options.size = 0;
    assert_int_equal(ctrun_sampler_create(&s, &options, &err), -EINVAL);
    assert_null(s);
}

TEST(every_failing_allocation_is_survived)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_sampler *s;

    options.count = 5;
    for (size_t n = 1; n <= 2; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(ctrun_sampler_create(&s, &options, NULL), -ENOMEM);
        assert_null(s);
    }
    ct_alloc_fail_at(0);
    assert_int_equal(ctrun_sampler_create(&s, &options, NULL), 0);
    ctrun_sampler_destroy(s);
}
