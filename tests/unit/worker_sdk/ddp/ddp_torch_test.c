/* SPDX-License-Identifier: Apache-2.0 */
/* Stories from torch's tests of DDP that no other test here has. The model is y = a x + b x^2 with
 * scalars a and b, so a's gradient is x and b's x^2. */
#include <math.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/str.h"

enum {
    A,
    B,
    BOTH
};

static float values[BOTH];

static void describe(struct ctrun_param *params)
{
    static const char *const names[] = {"a", "b"};

    for (int p = 0; p < BOTH; p++) {
        params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        params[p].name = names[p];
        params[p].data = &values[p];
    }
}

static struct ctrun_ddp *make(struct ctrun_group *group,
                              const struct ctrun_ddp_options *options)
{
    struct ctrun_param params[BOTH];
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    describe(params);
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, BOTH, options, &err));
    return ddp;
}

static float grad(struct ctrun_ddp *ddp, size_t p)
{
    return *(float *)ctrun_ddp_grad(ddp, p);
}

static int begin(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const int rc = ctrun_ddp_forward_begin(ddp, err);

    return rc < 0 ? rc : ctrun_ddp_backward_begin(ddp, NULL, err);
}

static int give(struct ctrun_ddp *ddp, size_t p, float value, struct ctrun_error *err)
{
    *(float *)ctrun_ddp_grad(ddp, p) += value;
    return ctrun_ddp_grad_ready(ddp, p, NULL, err);
}

static void step(struct ctrun_ddp *ddp, float x)
{
    struct ctrun_error err;

    CHECK_OK(begin(ddp, &err));
    CHECK_OK(give(ddp, B, x * x, &err));
    CHECK_OK(give(ddp, A, x, &err));
    CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
}

/* ---- Buckets ----------------------------------------------------------------------------- */

/* A bucket has only one type, however large it may be. */
TORCH_WORLD_TEST(a_bucket_holds_one_type, 2, "multi_dtype_single_bucket")
{
    struct ctrun_param params[] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT,
                                   CTRUN_PARAM_INIT};
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;
    double wide[3] = {0};

    for (int p = 0; p < 3; p++) {
        params[p].name = "w";
        params[p].data = &wide[p];
        params[p].dtype = p == 1 ? CTRUN_F64 : CTRUN_F32;
    }
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, 3, NULL, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(begin(ddp, &err));
        *(float *)ctrun_ddp_grad(ddp, 0) = (float)ctrun_group_rank(group);
        *(double *)ctrun_ddp_grad(ddp, 1) = 10 + ctrun_group_rank(group);
        *(float *)ctrun_ddp_grad(ddp, 2) = 20;
        for (size_t p = 0; p < 3; p++)
            CHECK_OK(ctrun_ddp_grad_ready(ddp, p, NULL, &err));
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        CHECK(*(float *)ctrun_ddp_grad(ddp, 0) == 0.5f);
        CHECK(*(double *)ctrun_ddp_grad(ddp, 1) == 10.5);
        CHECK(*(float *)ctrun_ddp_grad(ddp, 2) == 20);
    }
    CHECK_OK(ctrun_ddp_get_stats(ddp, &stats, &err));
    CHECK(stats.bucket_count == 2 &&
          stats.bucket_bytes[0] + stats.bucket_bytes[1] == 16);
    ctrun_ddp_destroy(ddp);
}

/* ---- Unused parameters ------------------------------------------------------------------- */

TORCH_WORLD_TEST(an_unused_parameter_needs_a_flag, 2, "find_unused_parameters_kwarg")
{
    static const uint8_t used[] = {1, 0};
    struct ctrun_error err = {.text = ""};

    for (int way = 0; way < 3; way++) {
        struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
        struct ctrun_ddp *ddp;
        int rc;

        options.find_unused = way == 1;
        options.static_graph = way == 2;
        ddp = make(group, &options);
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, way == 1 ? used : NULL, &err));
        CHECK_OK(give(ddp, A, 1, &err));
        rc = ctrun_ddp_backward_end(ddp, NULL, &err);
        if (way == 0) {
            CHECK(rc == CTRUN_E_USAGE);
            CHECK(ct_starts_with(err.text,
                                 "Expected to have finished reduction in the prior"));
            CHECK(strstr(err.text, "find_unused") && strstr(err.text, "1 (b)"));
        } else {
            CHECK(rc == 0 && grad(ddp, A) == 1);
            CHECK(!ctrun_ddp_grad_is_used(ddp, B));
        }
        ctrun_ddp_destroy(ddp);
    }
}

/* ---- Hooks ------------------------------------------------------------------------------- */

static int add_up(void *context, struct ctrun_group *group,
                  const struct ctrun_bucket *bucket, struct ctrun_work **work,
                  struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;

    ++*(int *)context;
    options.work = work;
    return ctrun_all_reduce(group, bucket->data, bucket->data, bucket->elements,
                            bucket->dtype, CTRUN_AVG, &options, err);
}

static int do_nothing(void *context, struct ctrun_group *group,
                      const struct ctrun_bucket *bucket, struct ctrun_work **work,
                      struct ctrun_error *err)
{
    ++*(int *)context;
    *work = NULL;
    return 0;
}

static void hook_body(struct ctrun_group *group, void *context)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const float x = (float)ctrun_group_rank(group) + 1;
    struct ctrun_ddp *ddp;
    int calls = 0;

    options.hook = *(const bool *)context ? do_nothing : add_up;
    options.hook_context = &calls;
    ddp = make(group, &options);
    ctrun_ddp_no_sync(ddp, true);
    step(ddp, x);
    CHECK(grad(ddp, A) == x && calls == 0);
    ctrun_ddp_no_sync(ddp, false);
    step(ddp, 10 * x);
    CHECK(calls == 1);
    CHECK(grad(ddp, A) == (options.hook == add_up ? 16.5f : 11 * x));
    CHECK(grad(ddp, B) == (options.hook == add_up ? 252.5f : 101 * x * x));
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(a_hook_gets_what_was_accumulated,
           "accumulate_gradients_no_sync_allreduce_hook; noop_comm_hook")
{
    for (int i = 0; i < 2; i++) {
        bool is_nothing = i == 1;
        worlds_run_with(2, hook_body, &is_nothing);
    }
}

/* ---- Forward and backward ---------------------------------------------------------------- */

TORCH_WORLD_TEST(a_forward_needs_no_backward, 2, "no_grad")
{
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;

    for (int i = 0; i < 3; i++) {
        /* No communication while nothing must be synchronised. */
        if (i == ctrun_group_rank(group))
            CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, (float)ctrun_group_rank(group) + 1);
        CHECK(grad(ddp, A) == 1.5f && grad(ddp, B) == 2.5f);
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
    }
    ctrun_ddp_destroy(ddp);
}

/* Two outputs, each with its own backward, in different orders on the two ranks. */
TORCH_WORLD_TEST(outputs_may_have_a_backward_each, 2,
                 "multiple_outputs_multiple_backward; "
                 "multiple_outputs_multiple_backward_grad_is_view")
{
    struct ctrun_ddp *ddp = make(group, NULL);
    const size_t first = ctrun_group_rank(group) == 0 ? A : B;
    struct ctrun_error err;

    for (int i = 0; i < 4; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        CHECK_OK(begin(ddp, &err));
        CHECK_OK(give(ddp, first, (float)(i + (int)first), &err));
        CHECK_OK(give(ddp, BOTH - 1 - first, (float)(i + 1 - (int)first), &err));
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        CHECK(grad(ddp, A) == (float)i && grad(ddp, B) == (float)i + 1);
    }
    ctrun_ddp_destroy(ddp);
}

TORCH_WORLD_TEST(the_model_of_a_failed_step_gets_another_ddp, 2, "failure_recovery")
{
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    for (int i = 0; i < 3; i++) { /* the step is left at a different place each time */
        ddp = make(group, NULL);
        CHECK_OK(ctrun_ddp_forward_begin(ddp, &err));
        if (i > 0)
            CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        if (i > 1)
            CHECK_OK(give(ddp, B, 1, &err));
        ctrun_ddp_destroy(ddp);
    }
    ddp = make(group, NULL);
    for (int i = 0; i < 3; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, (float)ctrun_group_rank(group) + 1);
        CHECK(grad(ddp, A) == 1.5f && grad(ddp, B) == 2.5f);
    }
    ctrun_ddp_destroy(ddp);
}

/* ---- What is broadcast ------------------------------------------------------------------- */

enum {
    MANY = 60
};

TORCH_WORLD_TEST(tensors_of_all_types_and_lengths_are_broadcast, 3,
                 "broadcast_coalesced")
{
    static const enum ctrun_dtype types[] = {CTRUN_F32, CTRUN_U8,  CTRUN_F64,
                                             CTRUN_I64, CTRUN_F16, CTRUN_I8};
    static uint64_t memory[MANY][20];
    const unsigned char mine = (unsigned char)ctrun_group_rank(group);
    struct ctrun_param params[MANY];
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    for (int p = 0; p < MANY; p++) { /* of 0 to 18 elements */
        params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        params[p].name = "t";
        params[p].data = memory[p];
        params[p].dtype = types[p % 6];
        params[p].no_grad = p > 0;
        params[p].dims = 1;
        params[p].sizes[0] = p ? p % 19 : 1;
        memset(memory[p], 10 * (mine + 1) + p % 7, sizeof memory[p]);
    }
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, MANY, NULL, &err));
    for (int p = 0; p < MANY; p++) {
        const size_t length = (size_t)params[p].sizes[0] *
                              ctrun_dtype_size(params[p].dtype);
        const unsigned char *bytes = (const unsigned char *)memory[p];

        for (size_t i = 0; i < sizeof memory[p]; i++) /* no byte after it changes */
            CHECK(bytes[i] == 10 * (i < length ? 1 : mine + 1) + p % 7);
    }
    ctrun_ddp_destroy(ddp);
}

/* A parameter that is not listed is not synchronised. */
TORCH_WORLD_TEST(a_parameter_that_is_not_listed_stays_local, 2, "ddp_ignore_params_arg")
{
    const float mine = (float)ctrun_group_rank(group);
    struct ctrun_param params[BOTH];
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    describe(params);
    values[A] = values[B] = 5 + mine;
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, 1, NULL, &err));
    CHECK(values[A] == 5 && values[B] == 5 + mine);
    for (int i = 0; i < 3; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        CHECK_OK(begin(ddp, &err));
        CHECK_OK(give(ddp, A, mine, &err));
        CHECK_OK(ctrun_ddp_backward_end(ddp, NULL, &err));
        CHECK(grad(ddp, A) == 0.5f && !ctrun_ddp_grad(ddp, B));
    }
    CHECK_OK(ctrun_ddp_check_replicas(ddp, &err));
    ctrun_ddp_destroy(ddp);
}

/* ---- Checkpoints ------------------------------------------------------------------------- */

static void train(struct ctrun_ddp *ddp, int from, int to)
{
    for (int i = from; i < to; i++) {
        ctrun_ddp_zero_grad(ddp, NULL, NULL);
        step(ddp, sinf((float)i) + values[A] + 0.3f * values[B]);
        for (size_t p = A; p < BOTH; p++)
            values[p] -= 0.1f * grad(ddp, p);
    }
}

static int touch(struct ctrun_group *group, const char *path, bool is_save)
{
    struct ctrun_tensor tensors[BOTH] = {CTRUN_TENSOR_INIT, CTRUN_TENSOR_INIT};
    struct ctrun_checkpoint *file;
    struct ctrun_error err = {.text = ""};

    for (int p = 0; p < BOTH; p++) {
        tensors[p].name = p ? "module.b" : "module.a";
        tensors[p].data = &values[p];
    }
    if (is_save && ctrun_group_rank(group) == 0)
        CHECK_OK(ctrun_checkpoint_save(path, tensors, BOTH, NULL, 0, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    if (!is_save) {
        /* torch's DDP writes the prefix, its inner module does not. */
        tensors[A].name = "a";
        CHECK_OK(ctrun_checkpoint_open(&file, path, &err));
        for (int p = 0; p < BOTH; p++)
            CHECK_OK(ctrun_checkpoint_load(file, &tensors[p], &err));
        ctrun_checkpoint_close(file);
    }
    return 0;
}

static void checkpoint_body(struct ctrun_group *group, void *context)
{
    const char *path = context;
    float whole[BOTH];
    struct ctrun_ddp *ddp;

    values[A] = 1;
    values[B] = -1;
    ddp = make(group, NULL);
    train(ddp, 0, 3);
    touch(group, path, true);
    train(ddp, 3, 8);
    ctrun_ddp_destroy(ddp);
    memcpy(whole, values, sizeof whole);
    values[A] = values[B] = (float)ctrun_group_rank(group);
    touch(group, path, false);
    ddp = make(group, NULL);
    train(ddp, 3, 8);
    ctrun_ddp_destroy(ddp);
    CHECK(memcmp(whole, values, sizeof whole) == 0);
}

TORCH_TEST(a_training_goes_on_from_its_checkpoint, "save_load_checkpoint")
{
    char path[] = "/tmp/ctrun-ddp-XXXXXX";
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    worlds_run_with(2, checkpoint_body, path);
    assert_int_equal(unlink(path), 0);
}
