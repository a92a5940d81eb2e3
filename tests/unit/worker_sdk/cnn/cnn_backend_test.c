/* SPDX-License-Identifier: Apache-2.0 */
/* Compares each back end of this build with the plain one: log-probabilities, loss and
 * gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/cnn/backend.h"

/* Under a sanitizer the arithmetic takes minutes; the same code runs with fewer images. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    PART = 1
};
#else
enum {
    PART = 3
};
#endif

enum {
    IMAGES = 40,
    PARTS = 3,
    BATCH = PARTS * PART
};

struct fixture {
    struct cnn_model model;
    struct cnn_tensors want, got;
    struct ctrun_dataset data;
    uint64_t indices[BATCH];
    enum cnn_param order[CNN_PARAMS];
    int ready;
    bool no_dropout; /* for the engines that are made next */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint32_t noise = 1;

    assert_non_null(f);
    assert_int_equal(cnn_model_init(&f->model), 0);
    assert_int_equal(cnn_tensors_init(&f->want), 0);
    assert_int_equal(cnn_tensors_init(&f->got), 0);
    cnn_model_reset(&f->model, 3);
    f->data = (struct ctrun_dataset){.count = IMAGES, .rows = 28, .columns = 28};
    f->data.images = malloc(IMAGES * CNN_PIXELS);
    f->data.labels = malloc(IMAGES);
    for (size_t i = 0; i < IMAGES * CNN_PIXELS; i++) {
        noise = noise * 1664525u + 1013904223u;
        f->data.images[i] = i / 28 % 3 ? (uint8_t)(noise >> 24) : 0;
    }
    for (size_t i = 0; i < IMAGES; i++)
        f->data.labels[i] = (uint8_t)(i % 10);
    for (size_t i = 0; i < BATCH; i++)
        f->indices[i] = (i * 7 + 3) % IMAGES;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    cnn_model_deinit(&f->model);
    cnn_tensors_deinit(&f->want);
    cnn_tensors_deinit(&f->got);
    free(f->data.images);
    free(f->data.labels);
    free(f);
    return 0;
}

static int note_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    struct fixture *f = context;

    f->order[f->ready++] = p;
    return 0;
}

static struct cnn_engine *open_engine(struct fixture *f, const char *name, int threads)
{
    const struct cnn_engine_options options = {.model = &f->model,
                                               .threads = threads,
                                               .seed = 11,
                                               .exchange = true,
                                               .no_dropout = f->no_dropout};
    struct cnn_engine *engine = NULL;
    struct ctrun_error err;

    if (cnn_engine_open(&engine, name, &options, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    return engine;
}

/* Runs forward and backward of `count` samples; returns the sums. */
static struct cnn_sums run(struct fixture *f, struct cnn_engine *engine, size_t count,
                           struct cnn_tensors *grads, float *log_probs)
{
    const struct cnn_batch batch = {.data = &f->data,
                                    .indices = f->indices,
                                    .count = count,
                                    .epoch = 2,
                                    .train = true,
                                    .scale = 1.0f / BATCH,
                                    .log_probs = log_probs};
    struct cnn_sums sums;

    f->ready = 0;
    assert_int_equal(engine->backend->forward(engine, &batch, NULL), 0);
    assert_int_equal(engine->backend->backward(engine, grads->of, note_ready, f, NULL),
                     0);
    assert_int_equal(cnn_engine_take_sums(engine, &sums, NULL), 0);
    return sums;
}

static void compare(const char *name, const char *what, const float *got,
                    const float *want, size_t n, float tolerance)
{
    float top = 0;

    for (size_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf(want[i]));
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= tolerance * top))
            fail_msg("%s: %s[%zu] is %.9g, plain C has %.9g (largest %.3g)", name, what,
                     i, (double)got[i], (double)want[i], (double)top);
    }
}

/* The results of plain C for `count` samples. */
struct plain {
    size_t count;
    struct cnn_sums sums; /* the gradients are in f->want */
    float log_probs[BATCH * CNN_CLASSES];
};

static void check_against(const struct plain *plain, struct fixture *f,
                          const char *name, int threads)
{
    struct cnn_engine *engine = open_engine(f, name, threads);
    float log_probs[BATCH * CNN_CLASSES];
    const struct cnn_sums sums = run(f, engine, plain->count, &f->got, log_probs);

    assert_int_equal(sums.count, plain->count);
    assert_int_equal(plain->sums.correct, sums.correct);
    assert_true(fabs(plain->sums.loss - sums.loss) <= 1e-5 * plain->sums.loss);
    compare(name, "log_probs", log_probs, plain->log_probs, plain->count * CNN_CLASSES,
            1e-5f);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        compare(name, cnn_params[p].name, f->got.of[p], f->want.of[p],
                cnn_params[p].count, 1e-5f);
    cnn_engine_close(engine);
}

static void check_all(struct fixture *f, size_t count, const int *threads)
{
    struct cnn_engine *engine = open_engine(f, "plain", 1);
    struct plain plain = {.count = count};
    char why[200];

    plain.sums = run(f, engine, count, &f->want, plain.log_probs);
    assert_int_equal(plain.sums.count, count);
    cnn_engine_close(engine);
    for (size_t i = 0; cnn_backends[i]; i++) {
        if (!cnn_backends[i]->is_usable(why, sizeof why)) {
            print_message("skipped: %s: %s\n", cnn_backends[i]->name, why);
            continue;
        }
        if (strcmp(cnn_backends[i]->name, "cuda") == 0)
            continue; /* tests/gpu compares this one */
        for (const int *t = threads; *t; t++)
            check_against(&plain, f, cnn_backends[i]->name, *t);
    }
}

TEST_AROUND(every_back_end_computes_what_plain_c_does, setup, teardown)
{
    check_all(*state, BATCH, (const int[]){1, 3, 0});
    check_all(*state, 1, (const int[]){2, 0});
}

TEST_AROUND(without_dropout_all_units_are_kept, setup, teardown)
{
    float with[BATCH * CNN_CLASSES], without[BATCH * CNN_CLASSES],
        test[BATCH * CNN_CLASSES];
    struct fixture *f = *state;
    struct cnn_engine *engine = open_engine(f, "plain", 1);
    struct cnn_batch batch = {
        .data = &f->data, .indices = f->indices, .count = BATCH, .log_probs = test};

    assert_int_equal(engine->backend->forward(engine, &batch, NULL), 0);
    run(f, engine, BATCH, &f->want, with);
    cnn_engine_close(engine);
    f->no_dropout = true;
    engine = open_engine(f, "plain", 1);
    run(f, engine, BATCH, &f->want, without);
    cnn_engine_close(engine);
    assert_memory_equal(without, test, sizeof test); /* as without training */
    assert_memory_not_equal(without, with, sizeof with);
    check_all(f, BATCH, (const int[]){2, 0});
}

TEST_AROUND(an_empty_batch_gives_zero_gradients, setup, teardown)
{
    struct fixture *f = *state;
    char why[200];

    for (size_t i = 0; cnn_backends[i]; i++) {
        struct cnn_engine *engine;

        if (!cnn_backends[i]->is_usable(why, sizeof why))
            continue;
        engine = open_engine(f, cnn_backends[i]->name, 2);
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            f->got.of[p][0] = 7;
        run(f, engine, 0, &f->got, NULL);
        assert_int_equal(f->ready, CNN_PARAMS);
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            for (size_t k = 0; k < cnn_params[p].count; k++)
                assert_true(f->got.of[p][k] == 0);
        cnn_engine_close(engine);
    }
}

TEST_AROUND(gradients_are_ready_in_pytorchs_order, setup, teardown)
{
    static const enum cnn_param want[] = {7, 6, 5, 4, 2, 3, 0, 1};
    struct fixture *f = *state;
    char why[200];

    for (size_t i = 0; cnn_backends[i]; i++) {
        struct cnn_engine *engine;

        if (!cnn_backends[i]->is_usable(why, sizeof why))
            continue;
        engine = open_engine(f, cnn_backends[i]->name, 1);
        run(f, engine, 2, &f->got, NULL);
        assert_int_equal(f->ready, CNN_PARAMS);
        assert_memory_equal(f->order, want, sizeof want);
        cnn_engine_close(engine);
    }
}

/* 1 worker with a batch and 3 workers with a third of it each: the same masks, the same sum. */
TEST_AROUND(gradients_of_parts_add_up_to_those_of_the_whole, setup, teardown)
{
    struct fixture *f = *state;
    struct cnn_engine *engine = open_engine(f, "auto", 1);
    struct cnn_tensors sum = {0};
    const struct cnn_sums whole = run(f, engine, BATCH, &f->want, NULL);
    double loss = 0;

    assert_int_equal(cnn_tensors_init(&sum), 0);
    for (int part = 0; part < PARTS; part++) {
        loss += run(f, engine, PART, &f->got, NULL).loss;
        memmove(f->indices, f->indices + PART, (BATCH - PART) * sizeof *f->indices);
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            for (size_t k = 0; k < cnn_params[p].count; k++)
                sum.of[p][k] += f->got.of[p][k];
    }
    assert_true(fabs(loss - whole.loss) <= 1e-6 * loss);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        compare("parts", cnn_params[p].name, sum.of[p], f->want.of[p],
                cnn_params[p].count, 1e-5f);
    cnn_tensors_deinit(&sum);
    cnn_engine_close(engine);
}

/* Each parameter is NaN in turn: no maximum and no ReLU may hide that. */
TEST_AROUND(a_nan_parameter_shows_in_the_loss, setup, teardown)
{
    struct fixture *f = *state;
    char why[200];

    for (size_t i = 0; cnn_backends[i]; i++) {
        if (!cnn_backends[i]->is_usable(why, sizeof why))
            continue;
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
            struct cnn_engine *engine = open_engine(f, cnn_backends[i]->name, 1);
            const size_t bytes = cnn_params[p].count * sizeof(float);
            memcpy(f->want.of[p], f->model.values.of[p], bytes);
            for (size_t k = 0; k < cnn_params[p].count; k++)
                f->model.values.of[p][k] = NAN;
            assert_int_equal(cnn_engine_push(engine, NULL), 0);
            if (!isnan(run(f, engine, 1, &f->got, NULL).loss))
                fail_msg("%s: %s is NaN, the loss is not", cnn_backends[i]->name,
                         cnn_params[p].name);
            memcpy(f->model.values.of[p], f->want.of[p], bytes);
            cnn_engine_close(engine);
        }
    }
}

TEST_AROUND(an_unknown_back_end_is_refused_with_the_list, setup, teardown)
{
    struct fixture *f = *state;
    const struct cnn_engine_options options = {.model = &f->model, .threads = 1};
    struct cnn_engine *engine = NULL;
    struct ctrun_error err;

    assert_int_equal(cnn_engine_open(&engine, "abacus", &options, &err),
                     CTRUN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "auto"));
    assert_non_null(strstr(err.text, "plain"));
    assert_null(engine);
}
