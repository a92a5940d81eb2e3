/* SPDX-License-Identifier: Apache-2.0 */
/* Bucket assignment. The values are those of torch's _compute_bucket_assignment_by_size. */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/ddp/bucket.h"

enum {
    MAX = 8
};

/* The parameters of the reference CNN. */
#define MNIST_NETWORK                                                                  \
    {                                                                                  \
        {1152, 4, false}, {128, 4, false}, {73728, 4, false}, {256, 4, false},         \
            {4718592, 4, false}, {512, 4, false}, {5120, 4, false}, {40, 4, false},    \
    }

struct vector {
    const char *note;
    size_t count;
    struct ct_bucket_tensor tensors[MAX]; /* bytes, key, sparse */
    bool ordered;
    size_t order[MAX];
    size_t limit_count;
    uint64_t limits[2];
    size_t buckets;
    size_t members[MAX];
    size_t sizes[MAX];
    uint64_t bucket_limits[MAX];
};

static const struct vector vectors[] = {
    {"one cap, equal sizes",
     4,
     {{400, 4, false}, {800, 4, false}, {400, 4, false}, {200, 4, false}},
     false,
     {0},
     1,
     {400},
     4,
     {0, 1, 2, 3},
     {1, 1, 1, 1},
     {400, 400, 400, 400}},
    {"mixed dtype, interleaved",
     5,
     {{400, 4, false},
      {800, 8, false},
      {400, 4, false},
      {800, 8, false},
      {200, 4, false}},
     false,
     {0},
     1,
     {800},
     4,
     {0, 2, 1, 3, 4},
     {2, 1, 1, 1},
     {800, 800, 800, 800}},
    {"two limits: first small then the cap, per dtype",
     6,
     {{40, 4, false},
      {80, 8, false},
      {40, 4, false},
      {80, 8, false},
      {40, 4, false},
      {80, 8, false}},
     false,
     {0},
     2,
     {40, 80},
     5,
     {0, 1, 2, 4, 3, 5},
     {1, 1, 2, 1, 1},
     {40, 40, 80, 80, 80}},
    {"tensor larger than the cap",
     3,
     {{4000, 4, false}, {4, 4, false}, {4000, 4, false}},
     false,
     {0},
     1,
     {400},
     2,
     {0, 1, 2},
     {1, 2},
     {400, 400}},
    {"sparse gets a bucket of its own, limit 0",
     3,
     {{40, 4, false}, {40, 4, true}, {40, 4, false}},
     false,
     {0},
     1,
     {400},
     2,
     {0, 2, 1},
     {2, 1},
     {400, 0}},
    {"ready order given (rebuild): not sorted",
     5,
     {{256, 4, false},
      {1200000, 4, false},
      {512, 4, false},
      {5160, 4, false},
      {40, 4, false}},
     true,
     {4, 3, 2, 1, 0},
     2,
     {1048576, 26214400},
     2,
     {4, 3, 2, 1, 0},
     {4, 1},
     {1048576, 26214400}},
    {"MNIST network, construction, find_unused=False (no limit)",
     8,
     MNIST_NETWORK,
     false,
     {0},
     1,
     {UINT64_MAX},
     1,
     {0, 1, 2, 3, 4, 5, 6, 7},
     {8},
     {UINT64_MAX}},
    {"MNIST network, construction, find_unused=True",
     8,
     MNIST_NETWORK,
     false,
     {0},
     2,
     {1048576, 26214400},
     2,
     {0, 1, 2, 3, 4, 5, 6, 7},
     {5, 3},
     {1048576, 26214400}},
    {"MNIST network rebuilt in ready order",
     8,
     MNIST_NETWORK,
     true,
     {7, 6, 5, 4, 3, 2, 1, 0},
     2,
     {1048576, 26214400},
     2,
     {7, 6, 5, 4, 3, 2, 1, 0},
     {4, 4},
     {1048576, 26214400}},
    {"MNIST network in torch's ready order",
     8,
     MNIST_NETWORK,
     true,
     {7, 6, 5, 4, 2, 3, 0, 1},
     2,
     {1048576, 26214400},
     2,
     {7, 6, 5, 4, 2, 3, 0, 1},
     {4, 4},
     {1048576, 26214400}},
};

static void check(const struct vector *vector)
{
    struct ct_bucket_plan plan;

    assert_int_equal(ct_bucket_assign(&plan, vector->tensors, vector->count,
                                      vector->ordered ? vector->order : NULL,
                                      vector->limits, vector->limit_count),
                     0);
    if (plan.count != vector->buckets)
        fail_msg("%s: %zu buckets, torch has %zu", vector->note, plan.count,
                 vector->buckets);
    for (size_t b = 0; b < plan.count; b++) {
        assert_int_equal(plan.starts[b + 1] - plan.starts[b], vector->sizes[b]);
        assert_true(plan.limits[b] == vector->bucket_limits[b]);
    }
    for (size_t i = 0; i < vector->count; i++)
        if (plan.members[i] != vector->members[i])
            fail_msg("%s: place %zu has tensor %zu, in torch %zu", vector->note, i,
                     plan.members[i], vector->members[i]);
    ct_bucket_plan_deinit(&plan);
}

TORCH_TEST(buckets_are_those_of_torch, "vector bucket_assignment; sparse_buckets")
{
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++)
        check(&vectors[v]);
}

/* Tensors of 200 bytes, of one type or of two types in turn. */
static void of_limits(size_t count, bool is_mixed, uint64_t first, uint64_t then,
                      const struct vector *want)
{
    struct vector vector = *want;

    vector.count = count;
    vector.limits[0] = first;
    vector.limits[1] = then;
    vector.limit_count = then ? 2 : 1;
    for (size_t i = 0; i < count; i++)
        vector.tensors[i] = (struct ct_bucket_tensor){200, is_mixed && i % 2 ? 8 : 4,
                                                      false};
    check(&vector);
}

TORCH_TEST(one_limit_holds_for_one_type, "single_limit_single_dtype")
{
    of_limits(5, false, 400, 0,
              &(const struct vector){.note = "one limit, one type",
                                     .buckets = 3,
                                     .members = {0, 1, 2, 3, 4},
                                     .sizes = {2, 2, 1},
                                     .bucket_limits = {400, 400, 400}});
}

TORCH_TEST(one_limit_holds_for_each_type, "single_limit_multi_dtype")
{
    of_limits(6, true, 400, 0,
              &(const struct vector){.note = "one limit, two types",
                                     .buckets = 4,
                                     .members = {0, 2, 1, 3, 4, 5},
                                     .sizes = {2, 2, 1, 1},
                                     .bucket_limits = {400, 400, 400, 400}});
}

TORCH_TEST(the_last_limit_holds_for_the_rest_of_one_type, "multi_limit_single_dtype")
{
    of_limits(4, false, 200, 400,
              &(const struct vector){.note = "two limits, one type",
                                     .buckets = 3,
                                     .members = {0, 1, 2, 3},
                                     .sizes = {1, 2, 1},
                                     .bucket_limits = {200, 400, 400}});
}

TORCH_TEST(the_last_limit_holds_for_the_rest_of_each_type, "multi_limit_multi_dtype")
{
    of_limits(6, true, 200, 400,
              &(const struct vector){.note = "two limits, two types",
                                     .buckets = 4,
                                     .members = {0, 1, 2, 4, 3, 5},
                                     .sizes = {1, 1, 2, 2},
                                     .bucket_limits = {200, 200, 400, 400}});
}

TEST(reversing_keeps_the_members_order)
{
    static const struct ct_bucket_tensor tensors[] = {
        {4, 0, false}, {4, 0, false}, {8, 0, false}};
    static const uint64_t limit = 8;
    struct ct_bucket_plan plan;

    assert_int_equal(ct_bucket_assign(&plan, tensors, 3, NULL, &limit, 1), 0);
    assert_int_equal(ct_bucket_plan_reverse(&plan), 0);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.members[0], 2);
    assert_int_equal(plan.members[1], 0);
    assert_int_equal(plan.members[2], 1);
    assert_int_equal(plan.starts[1], 1);
    assert_int_equal(plan.starts[2], 3);
    ct_bucket_plan_deinit(&plan);
}

TEST(a_foreign_plan_must_name_each_tensor_once)
{
    static const int32_t good[] = {2, 0, 1};
    static const int32_t twice[] = {2, 0, 2};
    static const int32_t high[] = {2, 0, 3};
    static const int32_t negative[] = {2, 0, -1};
    static const int32_t sizes[] = {1, 2};
    static const int32_t short_sizes[] = {1, 1};
    static const int32_t long_sizes[] = {1, 3};
    static const int32_t zero_sizes[] = {0, 3};
    struct ct_bucket_plan plan;

    assert_int_equal(ct_bucket_plan_import(&plan, good, 3, sizes, 2), 0);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.members[0], 2);
    assert_int_equal(plan.starts[2], 3);
    ct_bucket_plan_deinit(&plan);
    assert_int_equal(ct_bucket_plan_import(&plan, twice, 3, sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, high, 3, sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, negative, 3, sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, good, 3, short_sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, good, 3, long_sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, good, 3, zero_sizes, 2), -EBADMSG);
    assert_int_equal(ct_bucket_plan_import(&plan, good, 3, sizes, 4), -EBADMSG);
}

TEST(every_failing_allocation_is_survived)
{
    static const struct ct_bucket_tensor tensors[] = {{4, 0, false}, {4, 1, false}};
    static const uint64_t limit = 8;
    struct ct_bucket_plan plan;
    int rc = -ENOMEM;

    for (size_t n = 1; rc < 0; n++) {
        ct_alloc_fail_at(n);
        rc = ct_bucket_assign(&plan, tensors, 2, NULL, &limit, 1);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_true(n < 20);
    }
    ct_alloc_fail_at(0);
    ct_bucket_plan_deinit(&plan);
}
