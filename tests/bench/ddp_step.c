/* SPDX-License-Identifier: Apache-2.0 */
/* usage: ddp_step ddp|lockstep|apart RANKS STEPS DATA
 * Times training steps of ctrun-mnist's network, 64 samples and one thread a rank, in forked
 * ranks: with the gradients reduced over shared memory ("ddp"), each for itself ("apart"), or each for
 * itself with a barrier in each step ("lockstep": what waiting for the slower one costs in any
 * exchange). The kernels skip zeroes, so the time of a step depends on the active units of the model: all
 * kinds use the same one, which was trained a little, and do not change it (a learning rate of 0).
 * Rank 0 prints one JSON line: medians of wall time and of its processor time, in ms. */
#include <time.h>

#include "tests/lib/ranks.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"

enum {
    TRAINED = 60, /* steps, each rank for itself, on the same data */
    WARM_UP = 20,
    BATCH = 64,
    STRIDE = 2 /* batches from one of a rank to its next, for any number of ranks */
};

enum kind {
    DDP,
    LOCKSTEP,
    APART,
    KINDS
};

static const char *const kinds[] = {
    [DDP] = "ddp", [LOCKSTEP] = "lockstep", [APART] = "apart"};

struct plan {
    enum kind kind;
    int ranks;
    uint64_t steps;
    const char *data;
};

struct bench {
    struct cnn_model model;
    struct cnn_tensors own;
    float *grads[CNN_PARAMS];
    struct ctrun_dataset data;
    struct cnn_engine *engine;
    struct ctrun_group *group; /* NULL: apart */
    struct ctrun_ddp *ddp;
};

static void open_ddp(struct bench *bench)
{
    struct ctrun_param params[CNN_PARAMS];
    struct ctrun_error err;

    memset(params, 0, sizeof params);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        params[p].size = sizeof *params;
        params[p].name = cnn_params[p].name;
        params[p].data = bench->model.values.of[p];
        params[p].dtype = CTRUN_F32;
        params[p].dims = cnn_params[p].dims;
        memcpy(params[p].sizes, cnn_params[p].sizes, sizeof cnn_params[p].sizes);
    }
    CHECK_OK(
        ctrun_ddp_create(&bench->ddp, bench->group, params, CNN_PARAMS, NULL, &err));
}

static int on_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    struct bench *bench = context;

    return bench->ddp ? ctrun_ddp_grad_ready(bench->ddp, (size_t)p, NULL, err) : 0;
}

static void step(struct bench *bench, uint64_t first, float lr)
{
    const struct cnn_backend *backend = bench->engine->backend;
    uint64_t indices[BATCH];
    const struct cnn_batch batch = {.data = &bench->data,
                                    .indices = indices,
                                    .count = BATCH,
                                    .train = true,
                                    .scale = 1.0f / BATCH};
    struct ctrun_error err;

    for (uint64_t i = 0; i < BATCH; i++)
        indices[i] = (first + i) * 7919 % bench->data.count;
    if (bench->ddp) {
        CHECK_OK(ctrun_ddp_forward_begin(bench->ddp, &err));
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            bench->grads[p] = ctrun_ddp_grad(bench->ddp, (size_t)p);
    }
    CHECK_OK(backend->forward(bench->engine, &batch, &err));
    if (bench->ddp)
        CHECK_OK(ctrun_ddp_backward_begin(bench->ddp, NULL, &err));
    CHECK_OK(backend->backward(bench->engine, bench->grads, on_ready, bench, &err));
    if (bench->ddp)
        CHECK_OK(ctrun_ddp_backward_end(bench->ddp, NULL, &err));
    else if (bench->group)
        CHECK_OK(ctrun_barrier(bench->group, NULL, &err));
    CHECK_OK(backend->update(bench->engine, bench->grads, lr, &err));
}

static double cpu_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static int body(int rank, void *context)
{
    const struct plan *plan = context;
    struct bench bench = {.group = NULL};
    const struct cnn_engine_options options = {
        .model = &bench.model, .threads = 1, .seed = 1};
    double *wall = calloc(plan->steps, sizeof *wall);
    double *cpu = calloc(plan->steps, sizeof *cpu);
    struct ctrun_error err;

    CHECK(wall && cpu);
    CHECK(cnn_model_init(&bench.model) == 0 && cnn_tensors_init(&bench.own) == 0);
    memcpy(bench.grads, bench.own.of, sizeof bench.grads);
    cnn_model_reset(&bench.model, 1);
    bench.data.size = sizeof bench.data;
    CHECK_OK(ctrun_dataset_load(&bench.data, plan->data, CTRUN_TRAIN, &err));
    CHECK_OK(cnn_engine_open(&bench.engine, "auto", &options, &err));
    CHECK_OK(cnn_engine_push(bench.engine, &err));
    for (uint64_t i = 0; i < TRAINED; i++)
        step(&bench, i * BATCH, 1.0f);
    if (plan->kind != APART)
        bench.group = ranks_open(rank, NULL, NULL);
    if (plan->kind == DDP)
        open_ddp(&bench);
    ranks_signal(0); /* those that are apart begin together, too */
    ranks_await(0, (unsigned)plan->ranks);
    for (uint64_t i = 0; i < WARM_UP + plan->steps; i++) {
        const uint64_t begin_ns = ct_now_ns();
        const double begin_cpu = cpu_ms();
        step(&bench, (i * STRIDE + (uint64_t)rank) * BATCH, 0.0f);
        if (i < WARM_UP)
            continue;
        wall[i - WARM_UP] = (double)(ct_now_ns() - begin_ns) / 1e6;
        cpu[i - WARM_UP] = cpu_ms() - begin_cpu;
    }
    if (rank == 0)
        printf("{\"ms\": %.3f, \"cpu_ms\": %.3f}\n", median(wall, plan->steps),
               median(cpu, plan->steps));
    ctrun_ddp_destroy(bench.ddp);
    ctrun_group_close(bench.group);
    cnn_engine_close(bench.engine);
    cnn_model_deinit(&bench.model);
    cnn_tensors_deinit(&bench.own);
    ctrun_dataset_free(&bench.data);
    free(wall);
    free(cpu);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t ranks = 0;
    struct plan plan = {.data = argc == 5 ? argv[4] : NULL};

    while (argc == 5 && plan.kind < KINDS && strcmp(argv[1], kinds[plan.kind]) != 0)
        plan.kind++;
    if (argc != 5 || plan.kind == KINDS ||
        ct_parse_u64(argv[2], 1, RANKS_MAX, &ranks) < 0 ||
        ct_parse_u64(argv[3], 1, 100000, &plan.steps) < 0) {
        fputs("usage: ddp_step ddp|lockstep|apart RANKS STEPS DATA\n", stderr);
        return 2;
    }
    plan.ranks = (int)ranks;
    return ranks_run(plan.ranks, body, &plan) != 0;
}
