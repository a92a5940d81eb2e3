/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD: gradients that are sent as two thin matrices. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"

enum {
    N = 12,
    M = 20,
    PARAMS = 3 /* a matrix, a vector, and a matrix that is too small to compress */
};

static float wide[N * M], bias[N], small[4];

static const size_t lengths[PARAMS] = {N * M, N, 4};

static int make(struct ctrun_ddp **out, struct ctrun_group *group,
                const struct ctrun_powersgd_options *powersgd, struct ctrun_error *err)
{
    struct ctrun_param params[PARAMS] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT,
                                         CTRUN_PARAM_INIT};
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    static const char *const names[] = {"wide", "bias", "small"};
    void *data[] = {wide, bias, small};

    for (int i = 0; i < PARAMS; i++) {
        params[i].name = names[i];
        params[i].data = data[i];
    }
    params[0].dims = 3; /* (N, 4, M / 4): the first dimension, and all others */
    memcpy(params[0].sizes, (int64_t[]){N, 4, M / 4}, 3 * sizeof(int64_t));
    params[1].dims = 1;
    params[1].sizes[0] = N;
    params[2].dims = 2;
    params[2].sizes[0] = params[2].sizes[1] = 2;
    options.powersgd = powersgd;
    /* The vector and the small matrix; the large one. */
    options.first_bucket_bytes = 64;
    return ctrun_ddp_create(out, group, params, PARAMS, &options, err);
}

static struct ctrun_powersgd_options settings(int rank)
{
    struct ctrun_powersgd_options options = CTRUN_POWERSGD_OPTIONS_INIT;

    options.rank = rank;
    options.start_step = 2;
    return options;
}

/* A fixed number from about -1 to 1 for each (seed, i). */
static float noise(unsigned seed, size_t i)
{
    uint32_t x = (uint32_t)(seed * 2654435761u + i * 40503u + 12345u);

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    x ^= x >> 16;
    return (float)((double)x / 2147483648.0 - 1.0);
}

/* A rank's gradient: of full rank, or u v' with the same v on all ranks. */
static float gradient(int rank, size_t p, size_t i, bool is_thin)
{
    const unsigned seed = 10 * (unsigned)rank + (unsigned)p;

    return p == 0 && is_thin ? noise(seed, i / M) * noise(99, i % M) : noise(seed, i);
}

static double average(int ranks, size_t p, size_t i, bool is_thin)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += (double)gradient(r, p, i, is_thin);
    return sum / ranks;
}

static bool has_nan; /* in the first gradient */

/* `forgets`: the bias gets no gradient. */
static int step(struct ctrun_ddp *ddp, int rank, bool is_thin, bool forgets,
                struct ctrun_error *err)
{
    int rc;

    if ((rc = ctrun_ddp_forward_begin(ddp, err)) < 0 ||
        (rc = ctrun_ddp_backward_begin(ddp, NULL, err)) < 0)
        return rc;
    for (size_t p = PARAMS; rc == 0 && p-- > 0;) {
        float *grad = ctrun_ddp_grad(ddp, p);

        for (size_t i = 0; i < lengths[p]; i++)
            grad[i] = has_nan && p == 0 ? NAN : gradient(rank, p, i, is_thin);
        if (!forgets || p != 1)
            rc = ctrun_ddp_grad_ready(ddp, p, NULL, err);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(ddp, NULL, err);
}

/* The largest difference from the true average. */
static double error_of(struct ctrun_ddp *ddp, size_t p, int ranks, bool is_thin)
{
    const float *grad = ctrun_ddp_grad(ddp, p);
    double most = 0;

    for (size_t i = 0; i < lengths[p]; i++)
        most = fmax(most, fabs((double)grad[i] - average(ranks, p, i, is_thin)));
    return most;
}

static void check_equal_on_all(struct ctrun_group *group, const float *grad)
{
    float all[4 * N * M];
    struct ctrun_error err;

    CHECK_OK(ctrun_all_gather(group, grad, all, (size_t)N * M, CTRUN_F32, NULL, &err));
    for (int r = 1; r < ctrun_group_size(group); r++)
        CHECK(memcmp(all, all + r * N * M, sizeof(float) * N * M) == 0);
}

/* ---- Stories ----------------------------------------------------------------------------- */

TORCH_WORLD_TEST(a_gradient_of_rank_one_comes_through_whole, 3,
                 "powersgd_ddp_comm_hook")
{
    const struct ctrun_powersgd_options options = settings(1);
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(step(ddp, rank, true, false, &err));
        for (size_t p = 0; p < PARAMS; p++)
            CHECK(error_of(ddp, p, ranks, true) < 1e-6);
        check_equal_on_all(group, ctrun_ddp_grad(ddp, 0));
    }
    ctrun_ddp_destroy(ddp);
}

WORLD_TEST(as_many_columns_as_rows_lose_nothing, 2)
{
    struct ctrun_powersgd_options options = settings(N);
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.min_compression = 0.01; /* even where it sends more */
    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(step(ddp, rank, false, false, &err));
        for (size_t p = 0; p < PARAMS; p++)
            CHECK(error_of(ddp, p, ranks, false) < 1e-5);
    }
    ctrun_ddp_destroy(ddp);
}

/* How far the mean of the results of all steps is from the average, compared with the first
 * compressed result. */
static void feedback_body(struct ctrun_group *group, void *context)
{
    enum {
        STEPS = 40
    };
    struct ctrun_powersgd_options options = settings(2);
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    double sum[N * M] = {0}, far = 0, first = 0;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.no_error_feedback = !*(const bool *)context;
    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 2 + STEPS; i++) {
        CHECK_OK(step(ddp, rank, false, false, &err));
        CHECK(i >= 2 || error_of(ddp, 0, ranks, false) < 1e-6); /* not compressed yet */
        first = i == 2 ? error_of(ddp, 0, ranks, false) : first;
        for (size_t k = 0; i >= 2 && k < (size_t)N * M; k++)
            sum[k] += (double)((float *)ctrun_ddp_grad(ddp, 0))[k] / STEPS;
    }
    for (size_t k = 0; k < (size_t)N * M; k++)
        far = fmax(far, fabs(sum[k] - average(ranks, 0, k, false)));
    CHECK(first > 0.2);
    CHECK(*(const bool *)context ? far < 0.5 * first : far > 0.8 * first);
    ctrun_ddp_destroy(ddp);
}

TEST(what_is_left_out_comes_with_later_steps)
{
    for (int i = 0; i < 2; i++) {
        bool has_feedback = i == 1;
        worlds_run_with(2, feedback_body, &has_feedback);
    }
}

WORLD_TEST(a_gradient_that_is_forgotten_is_told_in_spite_of_it, 2)
{
    const struct ctrun_powersgd_options options = settings(1);
    const int rank = ctrun_group_rank(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 4; i++)
        CHECK_OK(step(ddp, rank, true, false, &err));
    CHECK(step(ddp, rank, true, rank == 1, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "for rank 1: 1 (bias)"));
    CHECK_OK(step(ddp, rank, true, false, &err));
    ctrun_ddp_destroy(ddp);
}

WORLD_TEST(a_nan_is_seen_in_its_step_and_in_no_other, 2)
{
    const struct ctrun_powersgd_options options = settings(1);
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 9; i++) {
        has_nan = i > 2 && i % 3 == 0 && rank == 1;
        CHECK_OK(step(ddp, rank, true, false, &err));
        CHECK(i > 2 && i % 3 == 0 ? isnan(*(float *)ctrun_ddp_grad(ddp, 0))
                                  : error_of(ddp, 0, ranks, true) < 1e-6);
    }
    ctrun_ddp_destroy(ddp);
}

WORLD_TEST(options_that_make_no_sense_are_refused, 2)
{
    struct ctrun_powersgd_options bad[] = {settings(0), settings(1), settings(1),
                                           settings(1)};
    struct ctrun_powersgd_options other = settings(1 + ctrun_group_rank(group));
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    bad[1].start_step = 1;
    bad[2].min_compression = (double)NAN;
    bad[3].size = 3;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(make(&ddp, group, &bad[i], &err) == -EINVAL && !ddp);
    CHECK(make(&ddp, group, &other, &err) == CTRUN_E_MISMATCH && !ddp);
}
