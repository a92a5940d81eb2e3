/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer in groups of forked ranks. The values are those of torch 1.13 for the same story: the
 * model is y = a x + b x^2 with scalars a and b, so a's gradient is x and b's x^2. */
#include <errno.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/str.h"

/* ---- The scalar model ---- */

enum {
    A,
    B,
    BOTH
};

static float values[BOTH];

static struct ctrun_ddp *scalar_model(struct ctrun_group *group,
                                      const struct ctrun_ddp_options *options)
{
    const struct ctrun_param params[] = {{.size = sizeof(struct ctrun_param),
                                          .name = "a",
                                          .data = &values[A],
                                          .dtype = CTRUN_F32,
                                          .dims = 1,
                                          .sizes = {1}},
                                         {.size = sizeof(struct ctrun_param),
                                          .name = "b",
                                          .data = &values[B],
                                          .dtype = CTRUN_F32,
                                          .dims = 1,
                                          .sizes = {1}}};
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK_OK(ctrun_ddp_create(&ddp, group, params, BOTH, options, &err));
    return ddp;
}

static float grad(struct ctrun_ddp *ddp, size_t p)
{
    return *(float *)ctrun_ddp_grad(ddp, p);
}

/* Backward of one sample: adds to the gradients of the parameters in `use`. */
static int backward(struct ctrun_ddp *ddp, float x, const char *use,
                    struct ctrun_error *err)
{
    int rc = 0;

    if (rc == 0 && strchr(use, 'b')) {
        *(float *)ctrun_ddp_grad(ddp, B) += x * x;
        rc = ctrun_ddp_grad_ready(ddp, B, NULL, err);
    }
    if (rc == 0 && strchr(use, 'a')) {
        *(float *)ctrun_ddp_grad(ddp, A) += x;
        rc = ctrun_ddp_grad_ready(ddp, A, NULL, err);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(ddp, NULL, err);
}

static void step(struct ctrun_ddp *ddp, float x, const char *use, bool tell_used)
{
    const uint8_t used[] = {strchr(use, 'a') != NULL, strchr(use, 'b') != NULL};
    struct ctrun_error err;

    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(ddp, tell_used ? used : NULL, &err));
    CHECK_OK(backward(ddp, x, use, &err));
}

TORCH_WORLD_TEST(the_parameters_become_those_of_rank_0, 2,
                 "vector constructor broadcasts rank 0")
{
    const bool is_first = ctrun_group_rank(group) == 0;

    values[A] = is_first ? -0.0053f : 0.3643f;
    values[B] = is_first ? 0.3793f : -0.3121f;
    ctrun_ddp_destroy(scalar_model(group, NULL));
    CHECK(values[A] == -0.0053f && values[B] == 0.3793f);
}

TORCH_WORLD_TEST(gradients_are_averages, 2, "vector average; forward_backward")
{
    struct ctrun_ddp *ddp = scalar_model(group, NULL);

    for (int i = 0; i < 5; i++) { /* also after the rebuild */
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, (float)ctrun_group_rank(group) + 1, "ab", false);
        CHECK(grad(ddp, A) == 1.5f);
        CHECK(grad(ddp, B) == 2.5f);
        CHECK(ctrun_ddp_grad_is_used(ddp, A));
    }
    ctrun_ddp_destroy(ddp);
}

/* Else the averages would be made of zeroes on this rank, or of half of them. */
WORLD_TEST(gradients_are_not_zeroed_while_they_are_averaged, 2)
{
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    float x = (float)ctrun_group_rank(group) + 1;
    struct ctrun_error err;

    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    CHECK_OK(ctrun_ddp_zero_grad(ddp, NULL, &err));
    *(float *)ctrun_ddp_grad(ddp, B) = x;
    CHECK_OK(ctrun_ddp_grad_ready(ddp, B, NULL, &err));
    CHECK(ctrun_ddp_zero_grad(ddp, NULL, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "once one of them is ready"));
    CHECK_OK(backward(ddp, x, "a", &err)); /* the step continues */
    CHECK(grad(ddp, A) == 1.5f && grad(ddp, B) == 1.5f);
    CHECK_OK(ctrun_ddp_zero_grad(ddp, NULL, &err));
    CHECK(grad(ddp, A) == 0 && grad(ddp, B) == 0);
    ctrun_ddp_destroy(ddp);
}

TORCH_WORLD_TEST(no_sync_accumulates_until_the_next_sync, 2,
                 "vector no_sync then sync, grads accumulate; "
                 "accumulate_gradients_no_sync; "
                 "accumulate_gradients_no_sync_grad_is_view")
{
    float x = (float)ctrun_group_rank(group) + 1;
    struct ctrun_ddp *ddp = scalar_model(group, NULL);

    ctrun_ddp_no_sync(ddp, true);
    step(ddp, x, "ab", false);
    ctrun_ddp_no_sync(ddp, false);
    CHECK(grad(ddp, A) == x);
    CHECK(grad(ddp, B) == x * x);
    step(ddp, 10 * x, "ab", false);
    CHECK(grad(ddp, A) == 16.5f);
    CHECK(grad(ddp, B) == 252.5f);
    step(ddp, 1, "ab", false); /* the rebuild moves the accumulated gradients */
    CHECK(grad(ddp, A) == 17.5f);
    CHECK(grad(ddp, B) == 253.5f);
    ctrun_ddp_destroy(ddp);
}

/* Rank 0 calls its second backward with the average of the first, for which rank 1 waits. */
WORLD_TEST(no_sync_on_one_rank_is_a_mismatch, 2)
{
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    struct ctrun_error err = {.text = ""};
    int rc = 0;

    ctrun_ddp_no_sync(ddp, ctrun_group_rank(group) == 0);
    for (int i = 0; i < 2 && rc == 0; i++) {
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        rc = backward(ddp, 1, "ab", &err);
        ctrun_ddp_no_sync(ddp, false);
    }
    CHECK(rc == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 0 calls") && strstr(err.text, "rank 1 calls"));
    CHECK(strstr(err.text, "ctrun_ddp_no_sync()"));
    CHECK(strstr(err.text, "ddp: bucket 0 (") == err.text);
    ctrun_ddp_destroy(ddp);
}

/* The flag is read when a forward begins, not when its backward runs. */
WORLD_TEST(no_sync_counts_where_the_forward_is, 2)
{
    float x = (float)ctrun_group_rank(group) + 1;
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    struct ctrun_error err;

    ctrun_ddp_no_sync(ddp, true);
    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    ctrun_ddp_no_sync(ddp, false);
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    CHECK_OK(backward(ddp, x, "ab", &err));
    CHECK(grad(ddp, A) == x);
    ctrun_ddp_destroy(ddp);
}

TORCH_WORLD_TEST(unused_parameters_average_over_all_ranks, 2,
                 "vector find_unused_parameters; "
                 "vector find_unused_parameters, gradient_as_bucket_view; "
                 "forward_backward_unused_parameters; "
                 "global_local_unused_params_grad; "
                 "global_local_unused_params_grad_with_grad_is_view")
{
    static const struct {
        const char *use[2];
        float a;
        float b; /* NAN: no rank used it */
    } cases[] = {{{"a", "b"}, 0.5f, 2.0f},
                 {{"a", "a"}, 1.5f, NAN},
                 {{"ab", "a"}, 1.5f, 0.5f},
                 {{"ab", "ab"}, 1.5f, 2.5f}};
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    int rank = ctrun_group_rank(group);
    struct ctrun_ddp *ddp;

    options.find_unused = true;
    ddp = scalar_model(group, &options);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, (float)rank + 1, cases[i].use[rank], true);
        CHECK(grad(ddp, A) == cases[i].a);
        CHECK(ctrun_ddp_grad_is_used(ddp, A));
        CHECK(ctrun_ddp_grad_is_used(ddp, B) == !isnan(cases[i].b));
        CHECK(grad(ddp, B) == (isnan(cases[i].b) ? 0 : cases[i].b));
    }
    ctrun_ddp_destroy(ddp);
}

WORLD_TEST(globally_unused_gradients_stay_as_they_were, 7)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_ddp *ddp;

    options.find_unused = true;
    ddp = scalar_model(group, &options);
    /* For some values the average of seven copies differs from the value. */
    for (int i = 0; i < 50; i++) {
        float before;

        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, 1 + (float)i * 0.037f, "b", true);
        before = grad(ddp, B);
        /* No rank uses b, so no bit of its old gradient changes. */
        step(ddp, 1, "a", true);
        CHECK(grad(ddp, B) == before);
        CHECK(!ctrun_ddp_grad_is_used(ddp, B));
        CHECK(grad(ddp, A) == 1);
    }
    ctrun_ddp_destroy(ddp);
}

/* A parameter that is used in one micro-step of an accumulation counts as used. */
WORLD_TEST(a_parameter_used_under_no_sync_is_used, 2)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_ddp *ddp;

    options.find_unused = true;
    ddp = scalar_model(group, &options);
    ctrun_ddp_no_sync(ddp, true);
    step(ddp, 2, ctrun_group_rank(group) == 0 ? "ab" : "a", false);
    ctrun_ddp_no_sync(ddp, false);
    step(ddp, 1, "a", true);
    CHECK(ctrun_ddp_grad_is_used(ddp, B));
    CHECK(grad(ddp, B) == 2); /* 4 on rank 0, nothing on rank 1 */
    CHECK(grad(ddp, A) == 3);
    ctrun_ddp_destroy(ddp);
}

/* torch's numbers. b is never used, and is used at the end. */
static void static_graph_body(struct ctrun_group *group, void *context)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    float x = (float)ctrun_group_rank(group) + 1;
    const float want = ctrun_group_size(group) == 1 ? 1 : 1.5f;
    const uint8_t used[] = {1, 1};
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.static_graph = options.find_unused = true;
    ddp = scalar_model(group, &options);
    for (int i = 0; i < 3; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        *(float *)ctrun_ddp_grad(ddp, B) = 7;
        step(ddp, x, "a", false);
        CHECK(grad(ddp, A) == want);
        CHECK(ctrun_ddp_grad_is_used(ddp, A) && !ctrun_ddp_grad_is_used(ddp, B));
        CHECK_OK(ctrun_ddp_get_stats(ddp, &stats, &err));
        CHECK(stats.has_rebuilt_buckets == (i == 2));
    }
    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    CHECK(ctrun_ddp_backward_begin(ddp, used, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "pass NULL for used: with static_graph"));
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    CHECK(ctrun_ddp_grad_ready(ddp, B, NULL, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "Your training graph has changed in this iteration,") ==
          err.text);
    CHECK(strstr(err.text, "name b"));
    ctrun_ddp_zero_grad(ddp, NULL, NULL);
    CHECK_OK(backward(ddp, x, "a", &err)); /* the step can continue */
    CHECK(grad(ddp, A) == want);
    /* a was used at first, and is not used now. */
    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    CHECK(ctrun_ddp_backward_end(ddp, NULL, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "for rank 0: 0 (a)") && strstr(err.text, "static_graph"));
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(static_graph_leaves_unused_parameters_alone,
           "vector static_graph with an unused parameter; "
           "vector static_graph, unused becomes used; "
           "global_local_unused_params_grad_with_static_graph")
{
    worlds_run_with(2, static_graph_body, NULL);
    worlds_run_with(1, static_graph_body, NULL);
}

/* a is used twice a step, b only on the first rank. */
WORLD_TEST(static_graph_waits_for_every_use, 3)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const int rank = ctrun_group_rank(group);
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.static_graph = true;
    options.first_bucket_bytes = 4; /* two buckets after the rebuild */
    ddp = scalar_model(group, &options);
    for (int i = 0; i < 5; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        for (int k = 0; k < 2; k++) {
            *(float *)ctrun_ddp_grad(ddp, A) += (float)(rank + k);
            CHECK_OK(ctrun_ddp_grad_ready(ddp, A, NULL, &err));
        }
        if (rank == 0) {
            *(float *)ctrun_ddp_grad(ddp, B) = 6;
            CHECK_OK(ctrun_ddp_grad_ready(ddp, B, NULL, &err));
        }
        if (i > 0)
            CHECK(ctrun_ddp_grad_ready(ddp, A, NULL, &err) == CTRUN_E_USAGE);
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        CHECK(grad(ddp, A) == 3); /* 1, 3, 5 */
        CHECK(grad(ddp, B) == 2 && ctrun_ddp_grad_is_used(ddp, B));
    }
    CHECK(ctrun_ddp_join_begin(ddp, NULL, &err) == CTRUN_E_UNSUPPORTED);
    ctrun_ddp_destroy(ddp);
}

/* ---- Misuse ---- */

static void expect(int rc, int code, const struct ctrun_error *err, const char *begin,
                   const char *holds)
{
    if (rc == code && ct_starts_with(err->text, begin) && strstr(err->text, holds))
        return;
    print_error("code %d, text '%s'; wanted %d, '%s...%s'\n", rc, err->text, code,
                begin, holds);
    exit(1);
}

WORLD_TEST(misuse_is_told_at_once, 2)
{
    struct ctrun_work *work;
    float one = 1;
    struct ctrun_error err = {.text = ""};
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    const uint8_t used[] = {1, 1};

    expect(ctrun_ddp_grad_ready(ddp, A, NULL, &err), CTRUN_E_USAGE, &err,
           "ddp: the gradient", "ctrun_ddp_backward_begin()");
    expect(ctrun_ddp_backward_begin(ddp, NULL, &err), CTRUN_E_USAGE, &err,
           "ddp: backward without forward", "");
    expect(ctrun_ddp_backward_end(ddp, NULL, &err), CTRUN_E_USAGE, &err,
           "ddp: the end of", "");
    CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    expect(ctrun_ddp_backward_begin(ddp, used, &err), CTRUN_E_USAGE, &err,
           "ddp: backward_begin: pass NULL for used", "find_unused is not set");
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    expect(ctrun_ddp_grad_ready(ddp, 2, NULL, &err), -EINVAL, &err,
           "ddp: there is no parameter 2", "");
    expect(ctrun_ddp_grad_ready(ddp, B, ddp, &err), CTRUN_E_USAGE, &err,
           "ddp: a stream", "one of the host");
    CHECK_OK(ctrun_ddp_grad_ready(ddp, B, NULL, &err));
    expect(ctrun_ddp_grad_ready(ddp, B, NULL, &err), CTRUN_E_USAGE, &err,
           "Expected to mark a variable ready only once.", "index 1 with name b");
    expect(
        ctrun_ddp_forward_begin(ddp, &err), CTRUN_E_USAGE, &err,
        "Expected to have finished reduction in the prior iteration before starting a "
        "new one.",
        ": 0 (a)");
    CHECK_OK(ctrun_ddp_grad_ready(ddp, A, NULL, &err));
    expect(ctrun_ddp_forward_begin(ddp, &err), CTRUN_E_USAGE, &err,
           "Expected to have finished reduction", "did not receive grad for rank ");
    CHECK(strstr(err.text, ": none"));
    CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
    step(ddp, 1, "ab", false); /* the object can still be used */
    CHECK_OK(ctrun_all_reduce(group, &one, &one, 1, CTRUN_F32, CTRUN_SUM,
                              IN_BACKGROUND(&work), &err));
    expect(ctrun_work_wait_on(work, NULL, &err), CTRUN_E_USAGE, &err,
           "work wait: a group", "has no streams");
    CHECK_OK(ctrun_work_wait(work, &err));
    ctrun_ddp_destroy(ddp);
}

TORCH_WORLD_TEST(a_forgotten_gradient_fails_on_every_rank_at_once, 3,
                 "vector unused without the flag: error at the next forward")
{
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    struct ctrun_error err = {.text = ""};
    int rank = ctrun_group_rank(group);

    for (int i = 0; i < 3; i++) { /* also after the rebuild */
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        expect(backward(ddp, 1, rank == 1 ? "a" : "ab", &err), CTRUN_E_USAGE, &err,
               "Expected to have finished reduction in the prior iteration before "
               "starting "
               "a new one.",
               "did not receive grad for rank 1: 1 (b)");
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, 1, "ab", false);
        CHECK(grad(ddp, B) == 1);
    }
    ctrun_ddp_destroy(ddp);
}

static void mismatch_body(struct ctrun_group *group, void *context)
{
    static float data[8];
    const char *story = context;
    int rank = ctrun_group_rank(group);
    bool odd = rank == 1;
    struct ctrun_param params[] = {{.size = sizeof(struct ctrun_param),
                                    .name = "w",
                                    .data = data,
                                    .dtype = CTRUN_F32,
                                    .dims = 2,
                                    .sizes = {2, 3}},
                                   {.size = sizeof(struct ctrun_param),
                                    .name = "v",
                                    .data = data,
                                    .dtype = CTRUN_F32,
                                    .dims = 1,
                                    .sizes = {2}}};
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err = {.text = ""};
    struct ctrun_ddp *ddp;
    size_t count = 2;

    if (strcmp(story, "count") == 0)
        count = odd ? 1 : 2;
    else if (strcmp(story, "shape") == 0 && odd)
        params[0].sizes[0] = 3, params[0].sizes[1] = 2;
    else if (strcmp(story, "dtype") == 0 && odd)
        params[1].dtype = CTRUN_F16;
    else if (strcmp(story, "buffer") == 0)
        params[1].no_grad = true, params[1].is_buffer = odd;
    else if (strcmp(story, "options") == 0 && odd)
        options.first_bucket_bytes = 1;
    else if (strcmp(story, "reduce") == 0 && odd)
        options.reduce_dtype = CTRUN_BF16;
    else if (strcmp(story, "no_sync") == 0)
        options.no_init_sync = odd;
    else if (strcmp(story, "refused") == 0 && odd)
        params[1].sizes[0] = -1;
    if (strcmp(story, "count") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err,
               "ddp: DDP expects same model across all ranks, but Rank",
               rank == 0
                   ? "Rank 0 has 2 params, while rank 1 has inconsistent 1 params."
               : odd ? "Rank 1 has 1 params, while rank 0 has inconsistent 2 params."
                     : "Rank 2 has 2 params, while rank 1 has inconsistent 1 params.");
    else if (strcmp(story, "shape") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err, "ddp: DDP expects same model",
               "params[0] is 'w' f32 [2, 3] on rank 0 and 'w' f32 [3, 2] on rank 1 "
               "(differing from rank 0: rank 1)");
    else if (strcmp(story, "dtype") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err, "ddp: DDP expects same model",
               "params[1] is 'v' f32 [2] on rank 0 and 'v' f16 [2] on rank 1");
    else if (strcmp(story, "buffer") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err, "ddp: DDP expects same model",
               "params[1] is 'v' f32 [2] without gradient on rank 0 and 'v' f32 [2] "
               "buffer without gradient on rank 1 (differing from rank 0: rank 1)");
    else if (strcmp(story, "options") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err, "ddp: the option first_bucket_bytes is ",
               " on rank 0 and 1 on rank 1");
    else if (strcmp(story, "reduce") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err,
               "ddp: the option reduce_dtype is f32 on rank 0 and bf16 on rank 1", "");
    else if (strcmp(story, "no_sync") == 0)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err,
               "ddp: rank 1 has the option no_init_sync, rank 0 has not", "");
    else if (odd)
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err), -EINVAL,
               &err, "ddp: params[1] 'v': sizes[0] is -1", "");
    else
        expect(ctrun_ddp_create(&ddp, group, params, count, &options, &err),
               CTRUN_E_MISMATCH, &err,
               "ddp: rank 1 failed (E_USAGE): params[1] 'v': sizes[0] is -1", "");
    CHECK(ddp == NULL);
}

TORCH_TEST(t21_differing_models_fail_on_every_rank,
           "vector parameter count differs; "
           "vector parameter shape differs; param_layout_mismatch_error")
{
    static char stories[][8] = {"count",   "shape",  "dtype",   "buffer",
                                "options", "reduce", "no_sync", "refused"};

    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        worlds_run_with(3, mismatch_body, stories[i]);
}

TORCH_WORLD_TEST(a_model_without_gradients_needs_no_ddp, 2,
                 "vector nothing requires grad")
{
    const struct ctrun_param frozen = {.size = sizeof(struct ctrun_param),
                                       .name = "f",
                                       .data = values,
                                       .dtype = CTRUN_F32,
                                       .dims = 1,
                                       .sizes = {1},
                                       .no_grad = true};
    struct ctrun_error err = {.text = ""};
    struct ctrun_ddp *ddp;

    expect(ctrun_ddp_create(&ddp, group, &frozen, 1, NULL, &err), CTRUN_E_USAGE, &err,
           "DistributedDataParallel is not needed when a module doesn't have any "
           "parameter "
           "that requires a gradient.",
           "");
}

/* Three element types, so three buckets; the last one that is launched carries the flag. */
static void mixed_body(struct ctrun_group *group, void *context)
{
    static const enum ctrun_dtype types[] = {CTRUN_F64, CTRUN_F16, CTRUN_BF16};
    enum ctrun_dtype first = types[*(int *)context];
    int rank = ctrun_group_rank(group);
    double data[3] = {0};
    const struct ctrun_param params[] = {{.size = sizeof(struct ctrun_param),
                                          .name = "first",
                                          .data = &data[0],
                                          .dtype = first,
                                          .dims = 0},
                                         {.size = sizeof(struct ctrun_param),
                                          .name = "counter",
                                          .data = &data[1],
                                          .dtype = CTRUN_I64,
                                          .dims = 0,
                                          .no_grad = true},
                                         {.size = sizeof(struct ctrun_param),
                                          .name = "f32",
                                          .data = &data[2],
                                          .dtype = CTRUN_F32,
                                          .dims = 0}};
    struct ctrun_error err = {.text = ""};
    struct ctrun_ddp *ddp;

    data[1] = rank; /* broadcast, but not reduced */
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, 3, NULL, &err));
    CHECK(data[1] == 0);
    CHECK(ctrun_ddp_grad(ddp, 1) == NULL && ctrun_ddp_grad(ddp, 3) == NULL);
    for (int i = 0; i < 4; i++) {
        bool forgets = i % 2 == 1 && rank == 0;

        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        *(float *)ctrun_ddp_grad(ddp, 2) = (float)rank;
        CHECK_OK(ctrun_ddp_grad_ready(ddp, 2, NULL, &err));
        if (!forgets)
            CHECK_OK(ctrun_ddp_grad_ready(ddp, 0, NULL, &err));
        if (i % 2 == 1)
            expect(ctrun_ddp_backward_end(ddp, NULL, &err), CTRUN_E_USAGE, &err,
                   "Expected to", "for rank 0: 0 (first)");
        else
            CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        CHECK(*(float *)ctrun_ddp_grad(ddp, 2) == 0.5f);
    }
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(every_floating_type_has_its_buckets, "multi_dtype_multi_bucket")
{
    for (int type = 0; type < 3; type++)
        worlds_run_with(2, mixed_body, &type);
}

WORLD_TEST(a_lost_rank_ends_the_step_on_the_others, 3)
{
    struct ctrun_ddp *ddp = scalar_model(group, NULL);
    struct ctrun_error err = {.text = ""};
    int rc;

    step(ddp, 1, "ab", false);
    if (ctrun_group_rank(group) == 1)
        _exit(0); /* dies between two steps: the other ranks must get an error */
    if ((rc = ctrun_ddp_forward_begin(ddp, &err)) == 0 &&
        (rc = ctrun_ddp_backward_begin(ddp, NULL, &err)) == 0)
        rc = backward(ddp, 1, "ab", &err);
    CHECK(rc == CTRUN_E_PEER_LOST);
    expect(ctrun_ddp_forward_begin(ddp, &err), CTRUN_E_ABORTED, &err,
           "ddp: an earlier call", "cannot be used");
    expect(ctrun_ddp_backward_begin(ddp, NULL, &err), CTRUN_E_ABORTED, &err,
           "ddp:", "");
    expect(ctrun_ddp_grad_ready(ddp, A, NULL, &err), CTRUN_E_ABORTED, &err, "ddp:", "");
    expect(ctrun_ddp_backward_end(ddp, NULL, &err), CTRUN_E_ABORTED, &err, "ddp:", "");
    ctrun_ddp_destroy(ddp);
}

/* ---- The MNIST network's shapes ---- */

enum {
    MNIST_PARAMS = 8
};

static const struct {
    const char *name;
    int dims;
    int64_t sizes[4];
} mnist[MNIST_PARAMS] = {
    {"conv1.weight", 4, {32, 1, 3, 3}},  {"conv1.bias", 1, {32}},
    {"conv2.weight", 4, {64, 32, 3, 3}}, {"conv2.bias", 1, {64}},
    {"fc1.weight", 2, {128, 9216}},      {"fc1.bias", 1, {128}},
    {"fc2.weight", 2, {10, 128}},        {"fc2.bias", 1, {10}},
};
static const size_t mnist_order[MNIST_PARAMS] = {7, 6, 5, 4, 2, 3, 0, 1};

static size_t mnist_params(struct ctrun_param *params, int rank)
{
    size_t total = 0;

    for (size_t p = 0; p < MNIST_PARAMS; p++) {
        size_t n = 1;
        float *data;

        params[p] = (struct ctrun_param){.size = sizeof(struct ctrun_param),
                                         .name = mnist[p].name,
                                         .dtype = CTRUN_F32,
                                         .dims = mnist[p].dims};
        for (int i = 0; i < mnist[p].dims; i++)
            n *= (size_t)(params[p].sizes[i] = mnist[p].sizes[i]);
        data = calloc(n, sizeof *data);
        for (size_t i = 0; i < n; i++)
            data[i] = (float)(rank + 1) * (float)(p + 1);
        params[p].data = data;
        total += n;
    }
    return total;
}

static size_t numel(const struct ctrun_param *param)
{
    size_t n = 1;

    for (int i = 0; i < param->dims; i++)
        n *= (size_t)param->sizes[i];
    return n;
}

static uint64_t find_number(const char *json, const char *name)
{
    char key[80];
    const char *at;

    CHECK(ct_format(key, sizeof key, ", \"%s\": ", name) > 0);
    at = strstr(json, key);
    CHECK(at);
    return strtoull(at + strlen(key), NULL, 10);
}

static bool has_field(const char *json, const char *name, const char *value)
{
    char field[200];
    const char *at;

    CHECK(ct_format(field, sizeof field, "\"%s\": %s", name, value) > 0);
    at = strstr(json, field);
    return at && strchr(",}", at[strlen(field)]);
}

/* All names and values of torch's DDP logging data for this network; each that differs says why. */
static void check_logging_data(const struct ctrun_ddp *ddp, int rank, int ranks)
{
    static const char *const of_all[][2] = {
        {"backend_name", "\"host\""}, /* torch's is gloo */
        {"broadcast_buffers",
         "0"}, /* the option is 1 there, but there are no buffers */
        {"bucket_cap_bytes", "26214400"},
        {"bucket_sizes", "\"4799528\""},
        {"dtypes", "\"float\""},
        {"find_unused_parameters", "0"},
        {"gradient_as_bucket_view", "1"}, /* an option there */
        {"has_rebuilt_buckets", "1"},
        {"has_sync_bn", "0"},
        {"is_multi_device_module", "0"},
        {"iteration", "3"}, /* 10 there */
        {"num_parameter_tensors", "8"},
        {"rebuilt_bucket_sizes", "\"4724264, 75264\""},
        {"rebuilt_per_bucket_param_indices", "\"7 6 5 4, 2 3 0 1\""},
        {"total_parameter_size_bytes", "4799528"}};
    /* Of Python's module, of CUDA's and gloo's environment and of the launcher's: not known here. */
    static const char *const absent[] = {
        "cuda_visible_devices",  "device_ids",
        "gloo_device_transport", "gloo_num_threads",
        "gloo_socket_ifname",    "master_addr",
        "master_port",           "module_name",
        "output_device",         "torch_distributed_debug"};
    static const char *const times[] = {"forward_compute_time",
                                        "forward_compute_time_start",
                                        "avg_forward_compute_time",
                                        "backward_compute_time",
                                        "backward_compute_time_start",
                                        "backward_compute_time_end",
                                        "avg_backward_compute_time",
                                        "backward_comm_time",
                                        "backward_comm_time_start",
                                        "backward_comm_time_end",
                                        "avg_backward_comm_time",
                                        "backward_compute_comm_overlap_time",
                                        "avg_backward_compute_comm_overlap_time"};
    char json[4096], own[100];
    struct ctrun_error err;
    int length;

    CHECK_OK(length = ctrun_ddp_stats_json(ddp, json, sizeof json, &err));
    CHECK(length == (int)strlen(json) && json[0] == '{' && json[length - 1] == '}');
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++)
        CHECK(has_field(json, of_all[i][0], of_all[i][1]));
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        CHECK(!strstr(json, absent[i]));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        CHECK(find_number(json, times[i]) > 0 || !strstr(times[i], "_time_"));
    CHECK(find_number(json, "backward_comm_time") ==
          find_number(json, "backward_comm_time_end") -
              find_number(json, "backward_comm_time_start"));
    CHECK(ct_format(own, sizeof own, "{\"world_size\": %d, \"rank\": %d,", ranks,
                    rank) > 0);
    CHECK(strstr(json, own) == json);
    CHECK(has_field(json, "prev_iteration_grad_ready_order_indices",
                    rank == 0 ? "\"7, 6, 5, 4, 2, 3, 0, 1\""
                              : "\"1, 0, 3, 2, 4, 5, 6, 7\""));
    CHECK(ctrun_ddp_stats_json(ddp, json, (size_t)length, &err) == -ENOSPC);
    CHECK(ctrun_ddp_stats_json(ddp, json, 0, &err) == -ENOSPC);
    CHECK(ctrun_ddp_stats_json(ddp, json, (size_t)length + 1, &err) == length);
}

static void mnist_body(struct ctrun_group *group, void *context)
{
    int rank = ctrun_group_rank(group);
    int ranks = ctrun_group_size(group);
    struct ctrun_param params[MNIST_PARAMS];
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    CHECK(mnist_params(params, rank) == 1199882);
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, MNIST_PARAMS, NULL, &err));
    for (size_t p = 0; p < MNIST_PARAMS; p++) /* all ranks have rank 0's values */
        CHECK(((float *)params[p].data)[numel(&params[p]) - 1] == (float)(p + 1));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        for (size_t k = 0; k < MNIST_PARAMS; k++) {
            /* The order of rank 0 counts. */
            size_t p = rank == 0 ? mnist_order[k] : mnist_order[MNIST_PARAMS - 1 - k];
            float *g = ctrun_ddp_grad(ddp, p);

            for (size_t e = 0; e < numel(&params[p]); e++)
                g[e] = (float)(rank + (int)p + i);
            CHECK_OK(ctrun_ddp_grad_ready(ddp, p, NULL, &err));
        }
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        for (size_t p = 0; p < MNIST_PARAMS; p++) {
            const float *g = ctrun_ddp_grad(ddp, p);
            float mean = (float)(ranks - 1) / 2 + (float)((int)p + i);

            CHECK(g[0] == mean && g[numel(&params[p]) - 1] == mean);
        }
        CHECK_OK(ctrun_ddp_get_stats(ddp, &stats, &err));
        CHECK(stats.iterations == (uint64_t)i + 1);
        CHECK(stats.has_rebuilt_buckets == (i > 0));
        CHECK(stats.bucket_count == (i > 0 ? 2 : 1));
        CHECK(stats.bucket_bytes[0] == (i > 0 ? 4724264 : 4799528));
        CHECK(stats.bucket_bytes[1] == (i > 0 ? 75264 : 0));
    }
    check_logging_data(ddp, rank, ranks);
    for (size_t p = 0; p < MNIST_PARAMS; p++)
        free(params[p].data);
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(mnist_buckets_are_rebuilt_in_rank_0s_order,
           "vector logging data of the MNIST network after 12 steps; "
           "vector time keys in the logging data (nanoseconds); "
           "single_dtype_single_bucket; sync_module_states; "
           "ddp_logging_data")
{
    worlds_run_with(1, mnist_body, NULL);
    worlds_run_with(2, mnist_body, NULL);
    worlds_run_with(4, mnist_body, NULL);
}

static void check_buckets(struct ctrun_group *group,
                          const struct ctrun_ddp_options *options)
{
    struct ctrun_param params[MNIST_PARAMS];
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    mnist_params(params, 0);
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, MNIST_PARAMS, options, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        for (size_t k = 0; k < MNIST_PARAMS; k++)
            CHECK_OK(ctrun_ddp_grad_ready(ddp, mnist_order[k], NULL, &err));
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
    }
    CHECK_OK(ctrun_ddp_get_stats(ddp, &stats, &err));
    CHECK(stats.has_rebuilt_buckets == options->small_last);
    CHECK(stats.bucket_count == 2);
    CHECK(stats.bucket_bytes[0] == 5672 && stats.bucket_bytes[1] == 4793856);
    for (size_t p = 0; p < MNIST_PARAMS; p++)
        free(params[p].data);
    ctrun_ddp_destroy(ddp);
}

/* With find_unused the limits hold from the start, and buckets are not rebuilt. */
WORLD_TEST(find_unused_keeps_its_first_buckets, 2)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;

    options.find_unused = true;
    check_buckets(group, &options);
}

/* Filled from the end: the convolutions and, because it exceeds the limit, fc1.weight. */
WORLD_TEST(small_last_rebuilds_with_the_small_bucket_behind, 2)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;

    options.small_last = true;
    check_buckets(group, &options);
}

/* Linear regression: W ranks with batch b give the same as one rank with batch W b. */
enum {
    FEATURES = 37,
    BATCH = 12,
    STEPS = 200
};

struct shared {
    float weights[RANKS_MAX][FEATURES + 1];
};

static float sample(int i, int f)
{
    return sinf((float)(i * 131 + f * 17));
}

static void regression_step(struct ctrun_ddp *ddp, float *weights, int first, int count)
{
    float *gw = ctrun_ddp_grad(ddp, 0);
    float *gb = ctrun_ddp_grad(ddp, 1);
    struct ctrun_error err;

    ctrun_ddp_zero_grad(ddp, NULL, NULL);
    for (int i = first; i < first + count; i++) {
        float y = weights[FEATURES] - cosf((float)i);

        for (int f = 0; f < FEATURES; f++)
            y += weights[f] * sample(i, f);
        for (int f = 0; f < FEATURES; f++)
            gw[f] += 2 * y * sample(i, f) / (float)count;
        *gb += 2 * y / (float)count;
    }
    CHECK_OK(ctrun_ddp_grad_ready(ddp, 1, NULL, &err));
    CHECK_OK(ctrun_ddp_grad_ready(ddp, 0, NULL, &err));
    CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
}

static void regression_body(struct ctrun_group *group, void *context)
{
    struct shared *shared = context;
    int rank = ctrun_group_rank(group);
    int count = BATCH / ctrun_group_size(group);
    float w[FEATURES + 1] = {0};
    const struct ctrun_param params[] = {{.size = sizeof(struct ctrun_param),
                                          .name = "w",
                                          .data = w,
                                          .dtype = CTRUN_F32,
                                          .dims = 1,
                                          .sizes = {FEATURES}},
                                         {.size = sizeof(struct ctrun_param),
                                          .name = "b",
                                          .data = w + FEATURES,
                                          .dtype = CTRUN_F32,
                                          .dims = 0}};
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    for (int f = 0; f < FEATURES; f++)
        w[f] = (float)(rank == 0) * 0.1f; /* the others get it from rank 0 */
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, 2, NULL, &err));
    for (int s = 0; s < STEPS; s++) {
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        regression_step(ddp, w, s * BATCH + rank * count, count);
        for (int f = 0; f < FEATURES; f++)
            w[f] -= 0.02f * ((float *)ctrun_ddp_grad(ddp, 0))[f];
        w[FEATURES] -= 0.02f * *(float *)ctrun_ddp_grad(ddp, 1);
    }
    memcpy(shared->weights[rank], w, sizeof w);
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(many_ranks_train_as_one_with_the_whole_batch,
           "forward_backward_optimizer; gradient_parity; parameter_digests")
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    float one[FEATURES + 1], first[FEATURES + 1];

    assert_true(shared != MAP_FAILED);
    worlds_run_with(1, regression_body, shared);
    memcpy(one, shared->weights[0], sizeof one);
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int wire = 0; wire < WIRES; wire++) {
            worlds_run_in((struct world){ranks, (enum wire)wire}, regression_body,
                          shared);
            if (wire == 0)
                memcpy(first, shared->weights[0], sizeof first);
            for (int r = 0; r < ranks;
                 r++) /* over each wire all ranks have the same bits */
                assert_memory_equal(shared->weights[r], first, sizeof first);
        }
        for (int f = 0; f <= FEATURES; f++)
            if (fabsf(first[f] - one[f]) > 1e-6f)
                fail_msg("%d ranks: weight %d is %.9g, one rank has %.9g", ranks, f,
                         (double)first[f], (double)one[f]);
    }
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}
