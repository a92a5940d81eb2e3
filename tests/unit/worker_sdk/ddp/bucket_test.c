/* SPDX-License-Identifier: Apache-2.0 */
/* Bucket assignment: the values are those of torch's _compute_bucket_assignment_by_size. */
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

static const struct {
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
} vectors[] = {
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

static void buckets_are_those_of_torch(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++) {
        struct ct_bucket_plan plan;

        assert_int_equal(ct_bucket_assign(&plan, vectors[v].tensors, vectors[v].count,
                                          vectors[v].ordered ? vectors[v].order : NULL,
                                          vectors[v].limits, vectors[v].limit_count),
                         0);
        if (plan.count != vectors[v].buckets)
            fail_msg("%s: %zu buckets, torch has %zu", vectors[v].note, plan.count,
                     vectors[v].buckets);
        for (size_t b = 0; b < plan.count; b++) {
            assert_int_equal(plan.starts[b + 1] - plan.starts[b], vectors[v].sizes[b]);
            assert_true(plan.limits[b] == vectors[v].bucket_limits[b]);
        }
        for (size_t i = 0; i < vectors[v].count; i++)
            if (plan.members[i] != vectors[v].members[i])
                fail_msg("%s: place %zu has tensor %zu, in torch %zu", vectors[v].note,
                         i, plan.members[i], vectors[v].members[i]);
        ct_bucket_plan_deinit(&plan);
    }
}

static void reversing_keeps_the_members_order(void **state)
{
    static const struct ct_bucket_tensor tensors[] = {
        {4, 0, false}, {4, 0, false}, {8, 0, false}};
    static const uint64_t limit = 8;
    struct ct_bucket_plan plan;

    (void)state;
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

static void a_foreign_plan_must_name_each_tensor_once(void **state)
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

    (void)state;
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

static void every_failing_allocation_is_survived(void **state)
{
    static const struct ct_bucket_tensor tensors[] = {{4, 0, false}, {4, 1, false}};
    static const uint64_t limit = 8;
    struct ct_bucket_plan plan;
    int rc = -ENOMEM;

    (void)state;
    for (size_t n = 1; rc < 0; n++) {
        ct_alloc_fail_at(n);
        rc = ct_bucket_assign(&plan, tensors, 2, NULL, &limit, 1);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_true(n < 20);
    }
    ct_alloc_fail_at(0);
    ct_bucket_plan_deinit(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_those_of_torch),
        cmocka_unit_test(reversing_keeps_the_members_order),
        cmocka_unit_test(a_foreign_plan_must_name_each_tensor_once),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
