/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA back end against plain C: gradients of a step with exchange, and the parameters after
 * steps that stay on the GPU. Exit code 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/cnn/backend.h"

enum {
    IMAGES = 96,
    BATCH = 32,
    STEPS = 3
};

static struct ctrun_dataset data = {.count = IMAGES, .rows = 28, .columns = 28};

static void make_data(void)
{
    uint32_t noise = 1;

    data.images = malloc(IMAGES * CNN_PIXELS);
    data.labels = malloc(IMAGES);
    for (size_t i = 0; i < IMAGES * CNN_PIXELS; i++) {
        noise = noise * 1664525u + 1013904223u;
        data.images[i] = (uint8_t)(noise >> 24);
    }
    for (size_t i = 0; i < IMAGES; i++)
        data.labels[i] = (uint8_t)(i % 10);
}

static void compare(const char *what, const float *got, const float *want, size_t n,
                    float tolerance)
{
    float top = 0;

    for (size_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tolerance * top))
            fail_msg("%s[%zu] is %.9g, plain C has %.9g (largest %.3g)", what, i,
                     (double)got[i], (double)want[i], (double)top);
}

static int ignore_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    return 0;
}

/* Trains `model` for `steps` batches; the last step's gradients end in grads. */
static double run(const char *name, struct cnn_model *model, bool exchange,
                  uint64_t steps, float *const grads[CNN_PARAMS])
{
    const struct cnn_engine_options options = {
        .model = model, .threads = 1, .seed = 5, .exchange = exchange};
    uint64_t indices[BATCH];
    struct cnn_batch batch = {.data = &data,
                              .indices = indices,
                              .count = BATCH,
                              .train = true,
                              .scale = 1.0f / BATCH};
    struct cnn_engine *engine = NULL;
    struct ctrun_error err = {0};
    struct cnn_sums sums;
    int rc = cnn_engine_open(&engine, name, &options, &err);

    for (uint64_t s = 0; s < steps && rc >= 0; s++) {
        for (uint64_t i = 0; i < BATCH; i++)
            indices[i] = (s * BATCH + i) % IMAGES;
        if ((rc = engine->backend->forward(engine, &batch, &err)) >= 0 &&
            (rc = engine->backend->backward(engine, grads, ignore_ready, NULL, &err)) >=
                0)
            rc = engine->backend->update(engine, grads, 0.01f, &err);
    }
    if (rc < 0 || cnn_engine_take_sums(engine, &sums, &err) < 0 ||
        cnn_engine_pull(engine, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(sums.count, steps * BATCH);
    cnn_engine_close(engine);
    return sums.loss;
}

static void compare_runs(bool exchange, uint64_t steps)
{
    struct cnn_model plain, cuda;
    struct cnn_tensors want, got;
    double a, b;

    assert_int_equal(cnn_model_init(&plain), 0);
    assert_int_equal(cnn_model_init(&cuda), 0);
    assert_int_equal(cnn_tensors_init(&want), 0);
    assert_int_equal(cnn_tensors_init(&got), 0);
    cnn_model_reset(&plain, 3);
    cnn_model_reset(&cuda, 3);
    a = run("plain", &plain, exchange, steps, want.of);
    b = run("cuda", &cuda, exchange, steps, got.of);
    assert_true(fabs(a - b) <= 1e-4 * a);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        const char *name = cnn_params[p].name;

        if (exchange)
            compare(name, got.of[p], want.of[p], cnn_params[p].count, 1e-4f);
        compare(name, cuda.values.of[p], plain.values.of[p], cnn_params[p].count,
                1e-3f);
    }
    cnn_tensors_deinit(&want);
    cnn_tensors_deinit(&got);
    cnn_model_deinit(&plain);
    cnn_model_deinit(&cuda);
}

TEST(a_step_with_exchange_gives_plain_cs_gradients)
{
    compare_runs(true, 1);
}

TEST(steps_on_the_gpu_end_at_plain_cs_parameters)
{
    compare_runs(false, STEPS);
    compare_runs(true, STEPS);
}

/* 0 when there is a usable GPU; else it prints why not. */
static int look_for_gpu(void)
{
    char why[200] = "this build has no CUDA back end";

    for (size_t i = 0; cnn_backends[i]; i++)
        if (strcmp(cnn_backends[i]->name, "cuda") == 0 &&
            cnn_backends[i]->is_usable(why, sizeof why))
            return 0;
    printf("skipped: %s\n", why);
    return -1;
}

int main(void)
{
    if (look_for_gpu() < 0)
        return 77;
    make_data();
    return test_run(NULL, NULL);
}
