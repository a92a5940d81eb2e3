/* SPDX-License-Identifier: Apache-2.0 */
/* The same sum, bit by bit, in worlds of every size. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/alloc.h"

enum {
    ELEMENTS = 103,
    VIRTUAL_MAX = 13,
};

/* The value of virtual rank v. Sizes differ much, so that each order of additions gives different
 * bits. */
static double value(uint64_t v, size_t i)
{
    return sin((double)(v * 131 + i * 17)) * pow(10, (double)((v * 5 + i) % 9));
}

static void fill(void *out, enum ctrun_dtype dtype, size_t count, uint64_t v)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == CTRUN_F32)
            ((float *)out)[i] = (float)value(v, i);
        else
            ((double *)out)[i] = value(v, i);
    }
}

/* The sum by its definition as a tree. */
static float sum_of(uint64_t begin, uint64_t size, uint64_t all, size_t i)
{
    float left;

    if (size == 1)
        return (float)value(begin, i);
    left = sum_of(begin, size / 2, all, i);
    return begin + size / 2 < all ? left + sum_of(begin + size / 2, size / 2, all, i)
                                  : left;
}

struct story {
    uint64_t all;
    size_t count;
    enum ctrun_dtype dtype;
    void *want; /* shared: the result of a world of one */
};

static void story_body(struct ctrun_group *group, void *context)
{
    const struct story *story = context;
    const size_t bytes = story->count * ctrun_dtype_size(story->dtype);
    double data[ELEMENTS], out[ELEMENTS + 1];
    struct ctrun_fixed_sum *sum;
    struct ctrun_error err;
    uint64_t first, end;

    CHECK_OK(ctrun_fixed_sum_create(&sum, group, story->all, story->count, story->dtype,
                                    &err));
    ctrun_fixed_sum_range(sum, &first, &end);
    for (int again = 0; again < 2; again++) {
        memset(out, 0xee, sizeof out);
        for (uint64_t v = first; v < end; v++) {
            fill(data, story->dtype, story->count, v);
            CHECK_OK(ctrun_fixed_sum_add(sum, data, &err));
            memset(data, 0, sizeof data); /* the data was copied */
        }
        CHECK_OK(ctrun_fixed_sum_finish(sum, out, NULL, &err));
        CHECK(((unsigned char *)out)[bytes] == 0xee);
        if (ctrun_group_size(group) == 1)
            memcpy(story->want, out, bytes);
        else
            CHECK(memcmp(story->want, out, bytes) == 0);
    }
    ctrun_fixed_sum_destroy(sum);
}

TEST(bits_do_not_depend_on_the_number_of_ranks)
{
    static const size_t counts[] = {1, 3, ELEMENTS};
    struct story story;

    story.want = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
    assert_true(story.want != MAP_FAILED);
    for (story.all = 1; story.all <= VIRTUAL_MAX; story.all++) {
        story.count = counts[story.all % 3];
        story.dtype = story.all % 2 ? CTRUN_F32 : CTRUN_F64;
        for (int ranks = 1; ranks <= 5; ranks++)
            worlds_run_with(ranks, story_body, &story);
    }
    assert_int_equal(munmap(story.want, 4096), 0);
}

TEST(the_tree_is_the_one_that_is_told)
{
    for (uint64_t all = 1; all <= 40; all++) {
        float data[ELEMENTS], out[ELEMENTS];
        struct ctrun_fixed_sum *sum;
        bool is_another = false;
        uint64_t first, end;

        assert_int_equal(
            ctrun_fixed_sum_create(&sum, NULL, all, ELEMENTS, CTRUN_F32, NULL), 0);
        ctrun_fixed_sum_range(sum, &first, &end);
        assert_true(first == 0 && end == all);
        for (uint64_t v = 0; v < all; v++) {
            fill(data, CTRUN_F32, ELEMENTS, v);
            assert_int_equal(ctrun_fixed_sum_add(sum, data, NULL), 0);
        }
        assert_int_equal(ctrun_fixed_sum_finish(sum, out, NULL, NULL), 0);
        for (size_t i = 0; i < ELEMENTS; i++) {
            float in_turn = 0, want = sum_of(0, 64, all, i);

            assert_memory_equal(&out[i], &want, sizeof want);
            for (uint64_t v = 0; v < all; v++)
                in_turn += (float)value(v, i);
            is_another = is_another || in_turn != want;
        }
        assert_true(is_another == (all > 3)); /* up to three are added in turn */
        ctrun_fixed_sum_destroy(sum);
    }
}

WORLD_TEST(misuse_is_told_on_every_rank, 3)
{
    const int rank = ctrun_group_rank(group);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_fixed_sum *sum;
    struct ctrun_work *work;
    struct ctrun_error err;
    float data = 1;

    CHECK(ctrun_fixed_sum_create(&sum, group, 6, rank == 1 ? 2 : 1, CTRUN_F32, &err) ==
          CTRUN_E_MISMATCH);
    CHECK(!sum && strstr(err.text, "rank 1 has 2 elements of type f32 on 6 virtual "
                                   "ranks, rank 0 has 1 of type f32 on 6"));
    CHECK(ctrun_fixed_sum_create(&sum, group, rank == 2 ? 0 : 6, 1, CTRUN_F32, &err) ==
          (rank == 2 ? -EINVAL : CTRUN_E_MISMATCH));
    CHECK(strstr(err.text, rank == 2 ? "1 to 1048576" : "rank 2 failed (E_USAGE)"));
    CHECK(ctrun_fixed_sum_create(&sum, group, 6, 1, CTRUN_BF16, &err) ==
          CTRUN_E_UNSUPPORTED);
    CHECK_OK(ctrun_fixed_sum_create(&sum, group, 6, 1, CTRUN_F32, &err));
    CHECK_OK(ctrun_fixed_sum_add(sum, &data, &err));
    if (rank != 1)
        CHECK_OK(ctrun_fixed_sum_add(sum, &data, &err));
    CHECK(ctrun_fixed_sum_finish(sum, &data, NULL, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "rank 1 has not added"));
    CHECK(ctrun_fixed_sum_add(sum, NULL, &err) == -EINVAL);
    if (rank == 1)
        CHECK_OK(ctrun_fixed_sum_add(sum, &data, &err));
    CHECK(ctrun_fixed_sum_add(sum, &data, &err) == CTRUN_E_USAGE);
    CHECK(ctrun_fixed_sum_finish(sum, NULL, NULL, &err) == -EINVAL);
    options.work = &work;
    CHECK(ctrun_fixed_sum_finish(sum, &data, &options, &err) == -EINVAL);
    CHECK_OK(ctrun_fixed_sum_finish(sum, &data, NULL, &err));
    CHECK(data == 6);
    ctrun_fixed_sum_destroy(sum);
}

TEST(every_failing_allocation_is_survived)
{
    struct ctrun_fixed_sum *sum = NULL;
    int rc = -ENOMEM;

    for (size_t n = 1; rc < 0; n++) {
        ct_alloc_fail_at(n);
        rc = ctrun_fixed_sum_create(&sum, NULL, 5, 7, CTRUN_F64, NULL);
        assert_true(rc == 0 || (rc == -ENOMEM && !sum));
        assert_true(n < 20);
    }
    ct_alloc_fail_at(0);
    ctrun_fixed_sum_destroy(sum);
}
