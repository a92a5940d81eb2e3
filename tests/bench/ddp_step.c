/* SPDX-License-Identifier: Apache-2.0 */
/* usage: ddp_step RANKS ROUNDS DATA
 * Times training steps of ctrun-mnist's network, 64 samples and one thread a rank, in forked
 * ranks. Each round has one step of each kind, so that all kinds meet the same noise: rank 0 alone while
 * the others sleep ("single"), each rank for itself ("apart"), each for itself with a barrier in the
 * step ("lockstep": what waiting for the slower one costs in any exchange), and with the gradients
 * reduced over shared memory ("DDP"). The kernels skip zeroes, so the time of a step depends on the
 * active units of the model: all kinds use the same one, which was trained a little, and do not change
 * it (a learning rate of 0).
 * Rank 0 prints a JSON line a round: for each kind, wall time and its processor time in ms. */
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
    SINGLE,
    APART,
    LOCKSTEP,
    DDP,
    KINDS
};

static const char *const kinds[] = {
    [SINGLE] = "single", [APART] = "apart", [LOCKSTEP] = "lockstep", [DDP] = "DDP"};

struct plan {
    uint64_t ranks;
    uint64_t rounds;
    const char *data;
};

struct sample {
    double wall_ms;
    double cpu_ms;
};

struct bench {
    struct cnn_model model;
    struct cnn_tensors own;
    float *grads[CNN_PARAMS];
    struct ctrun_dataset data;
    struct cnn_engine *engine;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    bool is_ddp; /* this step's gradients are reduced */
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

    return bench->is_ddp ? ctrun_ddp_grad_ready(bench->ddp, (size_t)p, NULL, err) : 0;
}

static void step(struct bench *bench, enum kind kind, uint64_t first, float lr)
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
    bench->is_ddp = kind == DDP;
    if (kind == DDP) { /* the other kinds use its memory, too */
        CHECK_OK(ctrun_ddp_forward_begin(bench->ddp, &err));
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            bench->grads[p] = ctrun_ddp_grad(bench->ddp, (size_t)p);
    }
    CHECK_OK(backend->forward(bench->engine, &batch, &err));
    if (kind == DDP)
        CHECK_OK(ctrun_ddp_backward_begin(bench->ddp, NULL, &err));
    CHECK_OK(backend->backward(bench->engine, bench->grads, on_ready, bench, &err));
    if (kind == DDP)
        CHECK_OK(ctrun_ddp_backward_end(bench->ddp, NULL, &err));
    else if (kind == LOCKSTEP)
        CHECK_OK(ctrun_barrier(bench->group, NULL, &err));
    CHECK_OK(backend->update(bench->engine, bench->grads, lr, &err));
}

static double cpu_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct sample measure(struct bench *bench, enum kind kind, int rank,
                             uint64_t first)
{
    struct ctrun_error err;

    CHECK_OK(ctrun_barrier(bench->group, NULL, &err));
    const uint64_t begin_ns = ct_now_ns();
    const double begin_cpu = cpu_ms();
    if (kind != SINGLE || rank == 0)
        step(bench, kind, first, 0.0f);
    return (struct sample){(double)(ct_now_ns() - begin_ns) / 1e6,
                           cpu_ms() - begin_cpu};
}

static void run_rounds(struct bench *bench, int rank, const struct plan *plan)
{
    for (uint64_t i = 0; i < WARM_UP + plan->rounds; i++) {
        struct sample samples[KINDS];
        const uint64_t first = (i * STRIDE + (uint64_t)rank) * BATCH;
        for (enum kind kind = 0; kind < KINDS; kind++)
            samples[kind] = measure(bench, kind, rank, first);
        for (enum kind kind = 0; rank == 0 && i >= WARM_UP && kind < KINDS; kind++)
            printf("%s\"%s\": [%.3f, %.3f]%s", kind ? ", " : "{", kinds[kind],
                   samples[kind].wall_ms, samples[kind].cpu_ms,
                   kind + 1 < KINDS ? "" : "}\n");
    }
}

static int body(int rank, void *context)
{
    struct bench bench = {.group = NULL};
    const struct plan *plan = context;
    const struct cnn_engine_options options = {
        .model = &bench.model, .threads = 1, .seed = 1};
    struct ctrun_error err;

    CHECK(cnn_model_init(&bench.model) == 0 && cnn_tensors_init(&bench.own) == 0);
    memcpy(bench.grads, bench.own.of, sizeof bench.grads);
    cnn_model_reset(&bench.model, 1);
    bench.data.size = sizeof bench.data;
    CHECK_OK(ctrun_dataset_load(&bench.data, plan->data, CTRUN_TRAIN, &err));
    CHECK_OK(cnn_engine_open(&bench.engine, "auto", &options, &err));
    CHECK_OK(cnn_engine_push(bench.engine, &err));
    for (uint64_t i = 0; i < TRAINED; i++)
        step(&bench, APART, i * BATCH, 1.0f);
    bench.group = ranks_open(rank, NULL, NULL);
    open_ddp(&bench);
    run_rounds(&bench, rank, plan);
    ctrun_ddp_destroy(bench.ddp);
    ctrun_group_close(bench.group);
    cnn_engine_close(bench.engine);
    cnn_model_deinit(&bench.model);
    cnn_tensors_deinit(&bench.own);
    ctrun_dataset_free(&bench.data);
    return 0;
}

int main(int argc, char **argv)
{
    struct plan plan = {.data = argc == 4 ? argv[3] : NULL};

    if (argc != 4 || ct_parse_u64(argv[1], 1, RANKS_MAX, &plan.ranks) < 0 ||
        ct_parse_u64(argv[2], 1, 100000, &plan.rounds) < 0) {
        fputs("usage: ddp_step RANKS ROUNDS DATA\n", stderr);
        return 2;
    }
    return ranks_run((int)plan.ranks, body, &plan) != 0;
}
