/* SPDX-License-Identifier: Apache-2.0 */
/* usage: step BACKEND THREADS STEPS DATA BATCH
 * Times training steps of ctrun-mnist's network, loading of the batch included; prints one JSON
 * line: median, 10th and 90th percentile in milliseconds. The first steps are left out: caches
 * are cold, and the activations are denser than in the rest of a training. */
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"

enum {
    WARM_UP = 40,
    STEPS_MAX = 100000,
    BATCH_MAX = 4096
};

struct bench {
    struct cnn_model model;
    struct cnn_tensors grads;
    struct ctrun_dataset data;
    struct cnn_engine *engine;
    uint64_t indices[BATCH_MAX];
    uint64_t batch, steps;
    double *ms;
};

static int ignore_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    (void)context;
    (void)p;
    (void)err;
    return 0;
}

static int step(struct bench *bench, uint64_t number, struct ctrun_error *err)
{
    const struct cnn_backend *backend = bench->engine->backend;
    const struct cnn_batch batch = {.data = &bench->data,
                                    .indices = bench->indices,
                                    .count = bench->batch,
                                    .train = true,
                                    .scale = 1.0f / (float)bench->batch};
    int rc;

    for (uint64_t i = 0; i < bench->batch; i++)
        bench->indices[i] = (number * bench->batch + i) * 7919 % bench->data.count;
    if ((rc = backend->forward(bench->engine, &batch, err)) < 0 ||
        (rc = backend->backward(bench->engine, bench->grads.of, ignore_ready, NULL,
                                err)) < 0)
        return rc;
    return backend->update(bench->engine, bench->grads.of, 1.0f, err);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int run(struct bench *bench, struct ctrun_error *err)
{
    for (uint64_t i = 0; i < WARM_UP + bench->steps; i++) {
        struct cnn_sums sums;
        const uint64_t begin = ct_now_ns();
        int rc;

        if ((rc = step(bench, i, err)) < 0 ||
            (rc = cnn_engine_take_sums(bench->engine, &sums, err)) < 0)
            return rc;
        if (i >= WARM_UP)
            bench->ms[i - WARM_UP] = (double)(ct_now_ns() - begin) / 1e6;
    }
    qsort(bench->ms, bench->steps, sizeof *bench->ms, compare);
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct ctrun_error err;
    uint64_t threads;

    if (argc != 6 || ct_parse_u64(argv[2], 1, 256, &threads) < 0 ||
        ct_parse_u64(argv[3], 1, STEPS_MAX, &bench.steps) < 0 ||
        ct_parse_u64(argv[5], 1, BATCH_MAX, &bench.batch) < 0) {
        fputs("usage: step BACKEND THREADS STEPS DATA BATCH\n", stderr);
        return 2;
    }
    const struct cnn_engine_options options = {
        .model = &bench.model, .threads = (int)threads, .seed = 1};

    if (cnn_model_init(&bench.model) < 0 || cnn_tensors_init(&bench.grads) < 0 ||
        !(bench.ms = calloc(bench.steps, sizeof *bench.ms)))
        return 1;
    cnn_model_reset(&bench.model, 1);
    bench.data.size = sizeof bench.data;
    if (ctrun_dataset_load(&bench.data, argv[4], CTRUN_TRAIN, &err) < 0 ||
        cnn_engine_open(&bench.engine, argv[1], &options, &err) < 0 ||
        cnn_engine_push(bench.engine, &err) < 0 || run(&bench, &err) < 0) {
        fprintf(stderr, "step: %s\n", err.text);
        return 1;
    }
    printf("{\"backend\": \"%s\", \"threads\": %d, \"ms\": %.3f, \"p10\": %.3f, "
           "\"p90\": %.3f}\n",
           bench.engine->backend->name, (int)threads, bench.ms[bench.steps / 2],
           bench.ms[bench.steps / 10], bench.ms[bench.steps * 9 / 10]);
    cnn_engine_close(bench.engine);
    cnn_model_deinit(&bench.model);
    cnn_tensors_deinit(&bench.grads);
    ctrun_dataset_free(&bench.data);
    free(bench.ms);
    return 0;
}
