/* SPDX-License-Identifier: Apache-2.0 */
/* A global batch in any world: each sample once, in micro-batches of limited size, equally many on
 * each rank. */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/include/ctrun.h"

enum {
    BATCH_MAX = 70
};

static void check(size_t batch, size_t at_once, int world)
{
    unsigned char seen[BATCH_MAX] = {0};
    size_t micros = 0;

    for (int rank = 0; rank < world; rank++) {
        struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;

        assert_int_equal(ctrun_batch_plan(&plan, batch, at_once, rank, world, NULL), 0);
        assert_true(rank == 0 || plan.micros == micros);
        assert_true(plan.count == batch / (size_t)world ||
                    plan.count == batch / (size_t)world + 1);
        micros = plan.micros;
        for (size_t i = 0; i < micros; i++) {
            size_t start, count;

            assert_int_equal(ctrun_batch_micro(&plan, i, &start, &count, NULL), 0);
            assert_true(count <= at_once && start >= plan.start &&
                        start + count <= plan.start + plan.count);
            for (size_t k = start; k < start + count; k++)
                seen[k]++;
        }
    }
    for (size_t k = 0; k < batch; k++)
        assert_int_equal(seen[k], 1);
    /* Not more micro-batches than the largest share needs. */
    assert_true((micros - 1) * at_once * (size_t)world < batch);
}

TEST(each_sample_is_in_one_micro_batch_of_one_rank)
{
    for (size_t batch = 1; batch <= BATCH_MAX; batch++)
        for (size_t at_once = 1; at_once <= BATCH_MAX; at_once += 3)
            for (int world = 1; world <= 9; world++)
                check(batch, at_once, world);
}

/* The world of step i has i % 5 + 1 ranks; all of them use the sampler of a world of one. */
TEST(worlds_that_change_go_through_the_epoch_of_one_sampler)
{
    enum {
        SAMPLES = 100,
        BATCH = 16
    };
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    unsigned char seen[SAMPLES] = {0};
    struct ctrun_sampler *sampler;
    struct ctrun_error err;
    int world = 0;

    options.count = SAMPLES;
    assert_int_equal(ctrun_sampler_create(&sampler, &options, &err), 0);
    assert_int_equal(ctrun_sampler_length(sampler), SAMPLES);
    for (size_t first = 0; first < SAMPLES; first += BATCH) {
        const size_t batch = first + BATCH < SAMPLES ? BATCH : SAMPLES - first;

        world = world % 5 + 1;
        for (int rank = 0; rank < world; rank++) {
            assert_int_equal(ctrun_batch_plan(&plan, batch, 3, rank, world, &err), 0);
            for (size_t i = 0; i < plan.micros; i++) {
                size_t start, count;

                assert_int_equal(ctrun_batch_micro(&plan, i, &start, &count, &err), 0);
                for (size_t k = start; k < start + count; k++)
                    seen[ctrun_sampler_index(sampler, first + k)]++;
            }
        }
    }
    for (size_t i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    ctrun_sampler_destroy(sampler);
}

TEST(what_is_no_batch_or_rank_is_refused)
{
    static const struct {
        size_t batch, at_once;
        int rank, world;
    } cases[] = {{0, 1, 0, 1}, {1, 0, 0, 1},  {1, 1, 0, 0},
                 {1, 1, 1, 1}, {1, 1, -1, 1}, {(size_t)INT32_MAX + 1, 1, 0, 1}};
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    struct ctrun_error err;
    size_t start, count;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ctrun_batch_plan(&plan, cases[i].batch, cases[i].at_once,
                                          cases[i].rank, cases[i].world, &err),
                         -EINVAL);
    assert_int_equal(ctrun_batch_plan(&plan, 8, 4, 0, 1, &err), 0);
    assert_int_equal(ctrun_batch_micro(&plan, 2, &start, &count, &err), -EINVAL);
    assert_string_equal(
        err.text,
        "batch plan: there is no micro-batch 2: the plan has 2, counted from 0");
    plan.size = 0;
    assert_int_equal(ctrun_batch_plan(&plan, 8, 4, 0, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "CTRUN_BATCH_PLAN_INIT"));
}
