/* SPDX-License-Identifier: Apache-2.0 */
/* What DDP does besides averages: halves, hooks, clipping, buffers; in groups of forked ranks. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"

enum {
    WIDE = 1000 /* elements of the first parameter; the second has one */
};

static float wide[WIDE], one[1], statistic[2];
static int64_t batches[1];

static bool follow_rank_0 = true; /* the statistic and the batches, as buffers */

static int make(struct ctrun_ddp **out, struct ctrun_group *group,
                const struct ctrun_ddp_options *options, struct ctrun_error *err)
{
    struct ctrun_param params[] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT, CTRUN_PARAM_INIT,
                                   CTRUN_PARAM_INIT};
    static const char *const names[] = {"wide", "one", "running_mean",
                                        "num_batches_tracked"};
    static const int64_t sizes[] = {WIDE, 1, 2, 1};
    void *data[] = {wide, one, statistic, batches};

    for (int i = 0; i < 4; i++) {
        params[i].name = names[i];
        params[i].data = data[i];
        params[i].dims = 1;
        params[i].sizes[0] = sizes[i];
    }
    params[2].no_grad = params[3].no_grad = true;
    params[2].is_buffer = params[3].is_buffer = follow_rank_0;
    params[3].dtype = CTRUN_I64;
    return ctrun_ddp_create(out, group, params, 4, options, err);
}

static int bad_at = -1; /* the element of `wide` that overflows; -1: none */

/* A step in which every gradient is `value`, behind its forward. `one` gets a gradient only if
 * `all`. */
static int backward(struct ctrun_ddp *ddp, float value, bool all,
                    struct ctrun_error *err)
{
    float *grad;
    int rc;

    if ((rc = ctrun_ddp_backward_begin(ddp, NULL, err)) < 0)
        return rc;
    *(float *)ctrun_ddp_grad(ddp, 1) = value;
    if (all && (rc = ctrun_ddp_grad_ready(ddp, 1, NULL, err)) < 0)
        return rc;
    grad = ctrun_ddp_grad(ddp, 0);
    for (int i = 0; i < WIDE; i++)
        grad[i] = i == bad_at ? -INFINITY : value;
    if ((rc = ctrun_ddp_grad_ready(ddp, 0, NULL, err)) < 0)
        return rc;
    return ctrun_ddp_backward_end(ddp, NULL, err);
}

static int step(struct ctrun_ddp *ddp, float value, bool all, struct ctrun_error *err)
{
    const int rc = ctrun_ddp_forward_begin(ddp, err);

    return rc < 0 ? rc : backward(ddp, value, all, err);
}

static void check_grads(struct ctrun_ddp *ddp, float want)
{
    const float *grad = ctrun_ddp_grad(ddp, 0);

    for (int i = 0; i < WIDE; i++)
        CHECK(grad[i] == want);
    CHECK(*(float *)ctrun_ddp_grad(ddp, 1) == want);
}

/* ---- Halves ------------------------------------------------------------------------------ */

TORCH_WORLD_TEST(gradients_may_travel_as_halves, 2,
                 "vector comm hooks; fp16_compress_wrapper; "
                 "bf16_compress_wrapper")
{
    static const float wants[] = {1.1660156f,
                                  1.171875f}; /* F16 as torch has it, BF16 */
    static const enum ctrun_dtype types[] = {CTRUN_F16, CTRUN_BF16};
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    for (int t = 0; t < 2; t++) {
        options.reduce_dtype = types[t];
        options.first_bucket_bytes = 256; /* two buckets after the rebuild */
        CHECK_OK(make(&ddp, group, &options, &err));
        for (int i = 0; i < 3; i++) {
            CHECK_OK(
                step(ddp, ctrun_group_rank(group) ? 4.0f / 3.0f : 1.0f, true, &err));
            check_grads(ddp, wants[t]);
        }
        CHECK(step(ddp, 1, ctrun_group_rank(group) == 0, &err) == CTRUN_E_USAGE);
        CHECK(strstr(err.text, "one"));
        ctrun_ddp_destroy(ddp);
    }
}

/* ---- Hooks ------------------------------------------------------------------------------- */

struct seen {
    size_t started, done, elements;
};

/* Checks that the gradients are where the slices say, with the value that step() wrote. */
static void check_slices(const struct ctrun_bucket *bucket)
{
    static const size_t lengths[] = {WIDE, 1};
    size_t end = 0;

    CHECK(bucket->slice_count == 2);
    for (size_t i = 0; i < bucket->slice_count; i++) {
        const struct ctrun_slice *slice = &bucket->slices[i];
        const float *data = bucket->data;

        CHECK(slice->elements == lengths[slice->param] && slice->offset >= end);
        end = slice->offset + slice->elements;
        CHECK(end <= bucket->elements);
        CHECK(data[slice->offset] == data[end - 1] && data[end - 1] != 0);
    }
    CHECK(bucket->slices[0].param != bucket->slices[1].param);
}

/* The largest gradient of all ranks. */
static int take_largest(void *context, struct ctrun_group *group,
                        const struct ctrun_bucket *bucket, struct ctrun_work **work,
                        struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct seen *seen = context;

    CHECK(bucket->index == seen->started % bucket->count);
    check_slices(bucket);
    seen->started++;
    seen->elements += bucket->elements;
    options.work = work;
    return ctrun_all_reduce(group, bucket->data, bucket->data, bucket->elements,
                            bucket->dtype, CTRUN_MAX, &options, err);
}

static int negate(void *context, const struct ctrun_bucket *bucket,
                  struct ctrun_error *err)
{
    struct seen *seen = context;
    float *data = bucket->data;

    check_slices(bucket);
    seen->done++;
    for (size_t i = 0; i < bucket->elements; i++)
        data[i] = -data[i];
    return 0;
}

static void hook_body(struct ctrun_group *group, void *context)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct seen seen = {0};
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.hook = take_largest;
    options.hook_done = negate;
    options.hook_context = &seen;
    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(step(ddp, (float)ctrun_group_rank(group) + 2, true, &err));
        check_grads(ddp, -(float)ctrun_group_size(group) - 1);
    }
    CHECK(seen.started == 3 && seen.done == 3 && seen.elements >= 3 * (WIDE + 1));
    /* A missing gradient is reported with a hook, too. */
    if (ctrun_group_size(group) > 1) {
        CHECK(step(ddp, 1, ctrun_group_rank(group) == 0, &err) == CTRUN_E_USAGE);
        CHECK(strstr(err.text, "one"));
    }
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(a_hook_takes_the_place_of_the_average,
           "ddp_comm_hook_future_passing_cpu; "
           "ddp_comm_hook_allreduce_hook; "
           "ddp_comm_hook_allreduce_with_then_hook")
{
    worlds_run_with(3, hook_body, NULL);
    worlds_run_with(1, hook_body, NULL);
}

TORCH_WORLD_TEST(a_second_hook_or_half_of_one_is_refused, 2,
                 "ddp_comm_hook_register_just_once; ddp_invalid_comm_hook_init")
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.hook_done = negate;
    CHECK(make(&ddp, group, &options, &err) == -EINVAL && !ddp);
    CHECK(strstr(err.text, "hook_done is set, but hook is NULL"));
    options.hook = take_largest;
    options.reduce_dtype = CTRUN_F16;
    CHECK(make(&ddp, group, &options, &err) == CTRUN_E_USAGE && !ddp);
    CHECK(strstr(err.text, "of hook, reduce_dtype and powersgd only one"));
    options = (struct ctrun_ddp_options)CTRUN_DDP_OPTIONS_INIT;
    options.reduce_dtype = CTRUN_I32;
    CHECK(make(&ddp, group, &options, &err) == -EINVAL && !ddp);
    CHECK(strstr(err.text, "must be CTRUN_F32"));
}

static int refuse(void *context, struct ctrun_group *group,
                  const struct ctrun_bucket *bucket, struct ctrun_work **work,
                  struct ctrun_error *err)
{
    err->code = -EDOM;
    memcpy(err->text, "no", sizeof "no");
    return -EDOM;
}

static int refuse_in_silence(void *context, struct ctrun_group *group,
                             const struct ctrun_bucket *bucket,
                             struct ctrun_work **work, struct ctrun_error *err)
{
    return -EDOM;
}

static int do_nothing(void *context, struct ctrun_group *group,
                      const struct ctrun_bucket *bucket, struct ctrun_work **work,
                      struct ctrun_error *err)
{
    return 0;
}

static int refuse_at_the_end(void *context, const struct ctrun_bucket *bucket,
                             struct ctrun_error *err)
{
    return -EDOM;
}

WORLD_TEST(a_hook_that_fails_ends_the_step, 2)
{
    static const struct {
        ctrun_ddp_hook_fn *hook;
        ctrun_ddp_hook_done_fn *done;
        const char *text;
    } rows[] = {
        {refuse, NULL, "no"},
        {refuse_in_silence, NULL, "ddp: the hook returned -33 without a reason"},
        {do_nothing, refuse_at_the_end, "ddp: hook_done returned -33 without a reason"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
        struct ctrun_error err = {.code = -EDOM, .text = "of an earlier call"};
        struct ctrun_ddp *ddp;

        options.hook = rows[i].hook;
        options.hook_done = rows[i].done;
        CHECK_OK(make(&ddp, group, &options, &err));
        CHECK(step(ddp, 1, true, &err) == -EDOM && err.code == -EDOM);
        CHECK(strcmp(err.text, rows[i].text) == 0);
        CHECK(ctrun_ddp_forward_begin(ddp, &err) == CTRUN_E_ABORTED);
        ctrun_ddp_destroy(ddp);
    }
}

/* ---- Clipping ---------------------------------------------------------------------------- */

WORLD_TEST(gradients_are_clipped_by_their_global_norm, 2)
{
    float rank = (float)ctrun_group_rank(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;
    double norm = 0;

    CHECK_OK(make(&ddp, group, NULL, &err));
    CHECK_OK(step(ddp, rank + 1.5f, true, &err)); /* the average is 2 */
    CHECK_OK(ctrun_ddp_clip_grad_norm(ddp, 100, &norm, &err));
    CHECK(fabs(norm - 2 * sqrt(WIDE + 1)) < 1e-9);
    check_grads(ddp, 2); /* below the limit */
    CHECK_OK(ctrun_ddp_clip_grad_norm(ddp, 1, NULL, &err));
    check_grads(ddp, (float)(2.0 * (1.0 / (norm + 1e-6))));
    CHECK_OK(step(ddp, rank == 0 ? NAN : 1, true, &err));
    CHECK(ctrun_ddp_clip_grad_norm(ddp, 1, NULL, &err) == CTRUN_E_DIVERGED);
    CHECK(strstr(err.text, "'wide'"));
    CHECK(ctrun_ddp_clip_grad_norm(ddp, 0, NULL, &err) == -EINVAL);
    ctrun_ddp_destroy(ddp);
}

/* ---- NaN -------------------------------------------------------------------------------- */

static void finite_body(struct ctrun_group *group, void *context)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const int last = ctrun_group_size(group) - 1;
    const bool is_last = ctrun_group_rank(group) == last;
    struct ctrun_powersgd_options powersgd = CTRUN_POWERSGD_OPTIONS_INIT;
    char on_wide[80], on_one[80];
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    snprintf(on_wide, sizeof on_wide, "on rank %d the gradient of parameter 0 'wide'",
             last);
    snprintf(on_one, sizeof on_one, "on rank %d the gradient of parameter 1 'one'",
             last);
    powersgd.start_step = 2;
    options.check_finite = true;
    options.first_bucket_bytes = 4; /* `one` in a bucket of its own after the rebuild */
    options.powersgd = *(const bool *)context ? &powersgd : NULL;
    CHECK_OK(make(&ddp, group, &options, &err));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(step(ddp, 3, true, &err));
        check_grads(ddp, 3);
        bad_at = is_last ? i % 2 ? 0 : WIDE - 1 : -1;
        CHECK(step(ddp, 3, true, &err) == CTRUN_E_DIVERGED);
        CHECK(strstr(err.text, on_wide) && strstr(err.text, "is not finite"));
        bad_at = -1;
        CHECK(step(ddp, is_last ? INFINITY : 1, true, &err) == CTRUN_E_DIVERGED);
        CHECK(strstr(err.text, on_one)); /* the first that was ready */
        /* If a gradient is missing, too, the first reason of the first rank counts. */
        CHECK(step(ddp, is_last ? NAN : 1, !is_last, &err) == CTRUN_E_DIVERGED);
    }
    ctrun_ddp_destroy(ddp);
}

TEST(a_gradient_that_is_not_finite_names_rank_and_parameter)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        bool by_powersgd = ranks == 2;
        worlds_run_with(ranks, finite_body, &by_powersgd);
    }
}

/* ---- Replicas ---------------------------------------------------------------------------- */

static void replica_body(struct ctrun_group *group, void *context)
{
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;
    char flipped;

    wide[17] = 3;
    CHECK_OK(make(&ddp, group, NULL, &err));
    statistic[0] = (float)rank;
    CHECK_OK(ctrun_ddp_check_replicas(ddp, &err)); /* buffers may differ */
    memcpy(&flipped, (char *)wide + 4 * 17, 1);
    flipped ^= rank == 1; /* one bit differs */
    memcpy((char *)wide + 4 * 17, &flipped, 1);
    if (ranks > 1) {
        CHECK(ctrun_ddp_check_replicas(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strstr(err.text,
                     "ddp: the parameters of rank 1 differ from those of rank 0"));
        CHECK(strstr(err.text, "on rank 1 is params[0] 'wide'"));
    }
    wide[17] = 3;
    one[0] = rank == 2 ? 0.0f : -0.0f; /* equal numbers, but one bit differs */
    if (ranks > 3) {
        one[0] = rank < 2 ? 5 : (float)(6 + rank / 3);
        CHECK(ctrun_ddp_check_replicas(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strstr(err.text, "ranks 2, 3 differ") && strstr(err.text, "of rank 0"));
        CHECK(strstr(err.text, "on rank 2 is params[1] 'one'"));
        one[0] = rank == 0 ? 1 : 2; /* rank 0 may be the one that differs */
        CHECK(ctrun_ddp_check_replicas(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strstr(err.text, "rank 0 differ") && strstr(err.text, "of rank 1"));
    } else if (ranks == 3) {
        CHECK(ctrun_ddp_check_replicas(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strstr(err.text, "rank 2 differ"));
    }
    CHECK_OK(step(ddp, 1, true, &err)); /* the object can still be used */
    ctrun_ddp_destroy(ddp);
}

TEST(the_rank_whose_parameters_differ_is_named)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        worlds_run_with(ranks, replica_body, NULL);
}

/* ---- Buffers ----------------------------------------------------------------------------- */

TORCH_WORLD_TEST(buffers_are_those_of_rank_0, 3, "vector broadcast_buffers")
{
    float rank = (float)ctrun_group_rank(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK_OK(make(&ddp, group, NULL, &err));
    statistic[0] = statistic[1] = 5 + rank;
    batches[0] = 100 * (ctrun_group_rank(group) + 1);
    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    CHECK(statistic[0] == 5 && statistic[1] == 5 &&
          batches[0] == 100); /* from rank 0 */
    ctrun_ddp_no_sync(ddp, true);
    statistic[0] = 7 + rank;
    /* Synchronised, because of the forward before. */
    CHECK_OK(step(ddp, 1, true, &err));
    CHECK(statistic[0] == 7);
    statistic[0] = 8 + rank;
    ctrun_ddp_no_sync(ddp, false);
    CHECK_OK(step(ddp, 1, true, &err));
    CHECK(statistic[0] == 8 + rank); /* not synchronised */
    CHECK_OK(step(ddp, 1, true, &err));
    CHECK(statistic[0] == 8);
    ctrun_ddp_destroy(ddp);
}

/* What a buffer hook of torch does after the forward: its work may end after backward. */
WORLD_TEST(buffers_may_be_averaged_while_gradients_are, 2)
{
    const float rank = (float)ctrun_group_rank(group);
    struct ctrun_call_options in_background = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    in_background.work = &work;
    follow_rank_0 = false;
    CHECK_OK(make(&ddp, group, NULL, &err));
    for (int i = 0; i < 3; i++) { /* the buckets are rebuilt on the way */
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK(i == 0 || statistic[0] == rank); /* not rank 0's */
        statistic[0] = statistic[1] = (float)i + rank;
        CHECK_OK(ctrun_all_reduce(group, statistic, statistic, 2, CTRUN_F32, CTRUN_AVG,
                                  &in_background, &err));
        CHECK_OK(backward(ddp, 2 * rank, true, &err));
        check_grads(ddp, 1);
        CHECK_OK(ctrun_work_wait(work, &err));
        CHECK(statistic[0] == (float)i + 0.5f && statistic[1] == (float)i + 0.5f);
        statistic[0] = rank;
    }
    ctrun_ddp_destroy(ddp);
}
