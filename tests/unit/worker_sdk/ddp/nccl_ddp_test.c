/* SPDX-License-Identifier: Apache-2.0 */
/* DDP on an NCCL group, over the fake of tests/lib/fake_nccl.h: two processes, with gradients that
 * only the device can access. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/cnn/backend.h"

enum {
    RANKS = 2,
    TIMEOUT_MS = 30000,
    LATE_US = 3000,
    LATE_STEPS =
        30, /* what does not wait for a stream that is so late comes before it */
    STEPPED =
        1, /* counter: rank 0 has made its step, which waits for rank 1 on the device */
};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    return 0;
}

static struct ctrun_group_options nccl_options(void)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.backend = "nccl";
    options.timeout_ms = TIMEOUT_MS;
    return options;
}

static struct ctrun_group *open_nccl(int rank)
{
    const struct ctrun_group_options options = nccl_options();

    return ranks_open(rank, NULL, &options);
}

/* ---- The CNN: host and device give the same bits ----------------------------------------- */

enum {
    IMAGES = 32,
    BATCH = 4,
    TRAINERS = 3,
    STEPS = 5
};

struct trainer {
    struct cnn_model model;
    struct cnn_tensors grads; /* of the engine */
    struct cnn_engine *engine;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    bool is_device;
    cudaStream_t stream;
    float *values[CNN_PARAMS]; /* on the device */
};

static void make_images(struct ctrun_dataset *data)
{
    unsigned seed = 7;

    *data = (struct ctrun_dataset){.size = sizeof *data,
                                   .count = IMAGES,
                                   .rows = CNN_SIDE,
                                   .columns = CNN_SIDE,
                                   .images = calloc(IMAGES, CNN_PIXELS),
                                   .labels = calloc(IMAGES, 1)};
    CHECK(data->images && data->labels);
    for (size_t i = 0; i < (size_t)IMAGES * CNN_PIXELS; i++)
        data->images[i] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
    for (size_t i = 0; i < IMAGES; i++)
        data->labels[i] = (uint8_t)(i % CNN_CLASSES);
}

static void copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream) == cudaSuccess);
}

static size_t bytes_of(enum cnn_param p)
{
    return cnn_params[p].count * sizeof(float);
}

/* Copies the values to where the trainer has them, and back to the host's model. */
static void place_values(struct trainer *t)
{
    if (t->is_device)
        CHECK(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) ==
              cudaSuccess);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        t->values[p] = t->model.values.of[p];
        if (!t->is_device)
            continue;
        CHECK(cudaMalloc((void **)&t->values[p], bytes_of(p)) == cudaSuccess);
        copy(t->values[p], t->model.values.of[p], bytes_of(p), t->stream);
    }
    CHECK(!t->is_device || cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static void fetch_values(struct trainer *t)
{
    for (enum cnn_param p = 0; t->is_device && p < CNN_PARAMS; p++)
        copy(t->model.values.of[p], t->values[p], bytes_of(p), t->stream);
    CHECK(!t->is_device || cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static void open_ddp(struct trainer *t)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_param params[CNN_PARAMS];
    struct ctrun_error err;

    memset(params, 0, sizeof params);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        params[p].size = sizeof *params;
        params[p].name = cnn_params[p].name;
        params[p].data = t->values[p];
        params[p].dtype = CTRUN_F32;
        params[p].dims = cnn_params[p].dims;
        memcpy(params[p].sizes, cnn_params[p].sizes, sizeof params[p].sizes[0] * 4);
    }
    options.first_bucket_bytes = 4096; /* several buckets */
    options.bucket_cap_bytes = 65536;
    CHECK_OK(ctrun_ddp_create(&t->ddp, t->group, params, CNN_PARAMS, &options, &err));
}

static int on_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    struct trainer *t = context;
    void *grad = ctrun_ddp_grad(t->ddp, (size_t)p);

    if (t->is_device) /* instead of a kernel that makes it there */
        copy(grad, t->grads.of[p], bytes_of(p), t->stream);
    else
        memcpy(grad, t->grads.of[p], bytes_of(p));
    return ctrun_ddp_grad_ready(t->ddp, (size_t)p, t->stream, err);
}

static void take_averages(struct trainer *t)
{
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        const void *grad = ctrun_ddp_grad(t->ddp, (size_t)p);

        if (t->is_device)
            copy(t->grads.of[p], grad, bytes_of(p), t->stream);
        else
            memcpy(t->grads.of[p], grad, bytes_of(p));
    }
    CHECK(!t->is_device || cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static void train_step(struct trainer *t, const struct ctrun_dataset *data,
                       uint64_t first)
{
    const struct cnn_backend *backend = t->engine->backend;
    uint64_t indices[BATCH];
    const struct cnn_batch batch = {.data = data,
                                    .indices = indices,
                                    .count = BATCH,
                                    .train = true,
                                    .scale = 1.0f / BATCH};
    struct ctrun_error err;

    for (uint64_t i = 0; i < BATCH; i++)
        indices[i] = (first + i) % IMAGES;
    CHECK_OK(ctrun_ddp_forward_begin(t->ddp, &err));
    CHECK_OK(backend->forward(t->engine, &batch, &err));
    CHECK_OK(ctrun_ddp_backward_begin(t->ddp, NULL, &err));
    CHECK_OK(backend->backward(t->engine, t->grads.of, on_ready, t, &err));
    CHECK_OK(ctrun_ddp_backward_end(t->ddp, t->stream, &err));
    take_averages(t);
    CHECK_OK(backend->update(t->engine, t->grads.of, 1.0f, &err));
}

static void close_trainer(struct trainer *t)
{
    ctrun_ddp_destroy(t->ddp);
    ctrun_group_close(t->group);
    cnn_engine_close(t->engine);
    cnn_model_deinit(&t->model);
    cnn_tensors_deinit(&t->grads);
    if (!t->is_device)
        return;
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        CHECK(cudaFree(t->values[p]) == cudaSuccess);
    CHECK(cudaStreamDestroy(t->stream) == cudaSuccess);
    CHECK(fake_nccl.blocks == 0);
}

static uint64_t train(int rank, bool is_device)
{
    struct trainer t = {.is_device = is_device};
    const struct cnn_engine_options options = {
        .model = &t.model, .threads = 1, .seed = 1, .exchange = true};
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_dataset data;
    struct ctrun_error err;
    uint64_t digest;

    make_images(&data);
    CHECK(cnn_model_init(&t.model) == 0 && cnn_tensors_init(&t.grads) == 0);
    cnn_model_reset(&t.model, (uint64_t)rank); /* all ranks get those of rank 0 */
    CHECK_OK(cnn_engine_open(&t.engine, "simd", &options, &err));
    t.group = is_device ? open_nccl(rank) : ranks_open(rank, NULL, NULL);
    place_values(&t);
    open_ddp(&t);
    fetch_values(&t);
    for (uint64_t i = 0; i < STEPS; i++)
        train_step(&t, &data, (i * TRAINERS + (uint64_t)rank) * BATCH);
    CHECK_OK(ctrun_ddp_get_stats(t.ddp, &stats, &err));
    CHECK(stats.has_rebuilt_buckets && stats.bucket_count > 2);
    digest = cnn_digest(&t.model.values);
    close_trainer(&t);
    ctrun_dataset_free(&data);
    return digest;
}

RANKS_TEST_AROUND(the_cnn_trains_to_the_same_bits_as_over_shared_memory, TRAINERS,
                  begin, NULL)
{
    const uint64_t digest = train(rank, false);

    fake_nccl.late_us = 50;
    CHECK(train(rank, true) == digest);
    return 0;
}

/* ---- Two parameters of one float each ---------------------------------------------------- */

enum {
    A,
    B,
    BOTH
};

struct pair {
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    float *values[BOTH];
    cudaStream_t stream;
};

/* A kernel that waits for the gate and adds to a float. */
struct add {
    float *to;
    float value;
    _Atomic bool *gate;
};

static void add(void *context)
{
    struct add *work = context;

    while (work->gate && !*work->gate)
        sched_yield();
    *(float *)fake_device(work->to) += work->value;
    free(work);
}

static void launch_add(struct pair *pair, size_t p, float value, _Atomic bool *gate)
{
    struct add *work = malloc(sizeof *work);

    CHECK(work);
    *work = (struct add){ctrun_ddp_grad(pair->ddp, p), value, gate};
    fake_launch(pair->stream, add, work);
}

static float fetch(const struct pair *pair, const void *from)
{
    float value = 0;

    copy(&value, from, sizeof value, pair->stream);
    CHECK(cudaStreamSynchronize(pair->stream) == cudaSuccess);
    return value;
}

static float grad(const struct pair *pair, size_t p)
{
    return fetch(pair, ctrun_ddp_grad(pair->ddp, p));
}

static bool with_static_graph; /* for objects that are made next */

/* Makes all calls until one fails. Returns the error of that call. */
static int open_pair(struct pair *pair, int rank, bool find_unused,
                     struct ctrun_error *err)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const struct ctrun_group_options nccl = nccl_options();
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_param params[BOTH] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT};
    int rc;

    *pair = (struct pair){.group = NULL};
    CHECK(cudaStreamCreateWithFlags(&pair->stream, cudaStreamNonBlocking) ==
          cudaSuccess);
    for (int p = 0; p < BOTH; p++) {
        CHECK(cudaMalloc((void **)&pair->values[p], sizeof(float)) == cudaSuccess);
        params[p].name = p == A ? "a" : "b";
        params[p].data = pair->values[p];
    }
    options.find_unused = find_unused;
    options.static_graph = with_static_graph;
    if ((rc = ct_group_open(&pair->group, &place, &nccl, err)) < 0)
        return rc;
    return ctrun_ddp_create(&pair->ddp, pair->group, params, BOTH, &options, err);
}

static void close_pair(struct pair *pair)
{
    ctrun_ddp_destroy(pair->ddp);
    ctrun_group_close(pair->group);
    for (int p = 0; p < BOTH; p++)
        CHECK(cudaFree(pair->values[p]) == cudaSuccess);
    CHECK(cudaStreamDestroy(pair->stream) == cudaSuccess);
    CHECK(fake_nccl.blocks == 0);
}

static int step(struct pair *pair, float x, const char *use, _Atomic bool *gate,
                struct ctrun_error *err)
{
    int rc;

    if ((rc = ctrun_ddp_forward_begin(pair->ddp, err)) < 0 ||
        (rc = ctrun_ddp_backward_begin(pair->ddp, NULL, err)) < 0)
        return rc;
    for (size_t p = BOTH; p-- > 0;) {
        if (!strchr(use, p == A ? 'a' : 'b'))
            continue;
        launch_add(pair, p, x, gate);
        if ((rc = ctrun_ddp_grad_ready(pair->ddp, p, pair->stream, err)) < 0)
            return rc;
    }
    return ctrun_ddp_backward_end(pair->ddp, pair->stream, err);
}

RANKS_TEST_AROUND(a_step_never_waits_for_the_device, RANKS, begin, NULL)
{
    _Atomic bool gate;
    struct ctrun_error err;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, false, &err));
    for (int i = 0; i < 4; i++) { /* also after the rebuild */
        CHECK_OK(ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err));
        gate = false;
        CHECK_OK(step(&pair, (float)rank + 1, "ab", &gate, &err));
        gate = true; /* a call that waited for the device would never return */
        const float a = grad(&pair, A), b = grad(&pair, B);
        if (a != 1.5f || b != 1.5f)
            fprintf(stderr, "step %d: %g and %g; the group: %d %s\n", i, (double)a,
                    (double)b, ctrun_barrier(pair.group, NULL, &err), err.text);
        CHECK(a == 1.5f && b == 1.5f);
    }
    close_pair(&pair);
    return 0;
}

RANKS_TEST_AROUND(gradients_accumulate_and_move_with_the_rebuild, RANKS, begin, NULL)
{
    float x = (float)rank + 1;
    struct ctrun_error err;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, false, &err));
    CHECK_OK(ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err));
    ctrun_ddp_no_sync(pair.ddp, true);
    CHECK_OK(step(&pair, x, "ab", NULL, &err));
    ctrun_ddp_no_sync(pair.ddp, false);
    CHECK(grad(&pair, A) == x);
    CHECK_OK(step(&pair, 10 * x, "ab", NULL, &err));
    CHECK(grad(&pair, A) == 16.5f);
    /* The rebuild moves the old gradients. */
    CHECK_OK(step(&pair, 1, "ab", NULL, &err));
    CHECK(grad(&pair, A) == 17.5f && grad(&pair, B) == 17.5f);
    close_pair(&pair);
    return 0;
}

RANKS_TEST_AROUND(unused_parameters_average_over_all_ranks, RANKS, begin, NULL)
{
    const uint8_t used[BOTH] = {rank == 0, rank == 1};
    struct ctrun_error err;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, true, &err));
    CHECK_OK(ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err));
    CHECK_OK(ctrun_ddp_forward_begin(pair.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(pair.ddp, used, &err));
    launch_add(&pair, rank ? B : A, 4, NULL);
    CHECK_OK(ctrun_ddp_grad_ready(pair.ddp, rank ? B : A, pair.stream, &err));
    CHECK_OK(ctrun_ddp_backward_end(pair.ddp, pair.stream, &err));
    CHECK(ctrun_ddp_grad_is_used(pair.ddp, A) && ctrun_ddp_grad_is_used(pair.ddp, B));
    CHECK(grad(&pair, A) == 2 && grad(&pair, B) == 2);
    CHECK_OK(ctrun_ddp_forward_begin(pair.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(pair.ddp, (const uint8_t[]){1, 0}, &err));
    launch_add(&pair, A, 1, NULL);
    CHECK_OK(ctrun_ddp_grad_ready(pair.ddp, A, pair.stream, &err));
    CHECK_OK(ctrun_ddp_backward_end(pair.ddp, pair.stream, &err));
    CHECK(!ctrun_ddp_grad_is_used(pair.ddp, B));
    CHECK(grad(&pair, A) == 3 && grad(&pair, B) == 2); /* b is unchanged */
    close_pair(&pair);
    return 0;
}

/* b gets a gradient only on rank 0. */
RANKS_TEST_AROUND(a_static_graph_waits_for_the_device_once, RANKS, begin, NULL)
{
    struct ctrun_error err;
    struct pair pair;

    with_static_graph = true;
    CHECK_OK(open_pair(&pair, rank, false, &err));
    for (int i = 0; i < 5; i++) { /* only the first step waits for the device */
        CHECK_OK(ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err));
        CHECK_OK(step(&pair, (float)rank + 1, rank ? "a" : "ab", NULL, &err));
        CHECK(grad(&pair, A) == 1.5f && grad(&pair, B) == 0.5f);
        CHECK(ctrun_ddp_grad_is_used(pair.ddp, B));
    }
    CHECK_OK(step(&pair, 1, rank ? "a" : "b", NULL, &err));
    CHECK(ctrun_ddp_forward_begin(pair.ddp, &err) == 0); /* backward reports it */
    CHECK(ctrun_ddp_backward_begin(pair.ddp, NULL, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "for rank 0: 0 (a)"));
    close_pair(&pair);
    return 0;
}

/* One rank alone: the group's stream is late with the zeroes of b, which gets another value next. */
RANKS_TEST_AROUND(the_zeroes_of_one_rank_come_before_what_is_next_on_the_stream, 1,
                  begin, NULL)
{
    struct ctrun_error err;
    cudaStream_t late;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, true, &err));
    CHECK(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking) == cudaSuccess);
    CHECK_OK(ctrun_ddp_forward_begin(pair.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(pair.ddp, (const uint8_t[]){1, 0}, &err));
    fake_nccl.late_us = LATE_US;
    fake_delay(late, LATE_STEPS);
    CHECK_OK(ct_group_clear(pair.group, NULL, 0, late, &err));
    launch_add(&pair, A, 4, NULL);
    CHECK_OK(ctrun_ddp_grad_ready(pair.ddp, A, pair.stream, &err));
    CHECK_OK(ctrun_ddp_backward_end(pair.ddp, pair.stream, &err));
    launch_add(&pair, B, 5, NULL);
    CHECK_OK(ctrun_barrier(pair.group, NULL, &err));
    CHECK(grad(&pair, A) == 4 && grad(&pair, B) == 5);
    fake_nccl.late_us = 0;
    CHECK(cudaStreamDestroy(late) == cudaSuccess);
    close_pair(&pair);
    return 0;
}

/* a comes on a late stream, b and the end of backward on another one. */
RANKS_TEST_AROUND(the_first_step_of_a_static_graph_waits_for_all_streams, RANKS, begin,
                  NULL)
{
    struct ctrun_error err;
    cudaStream_t late;
    struct pair pair;

    with_static_graph = true;
    CHECK_OK(open_pair(&pair, rank, false, &err));
    late = pair.stream;
    CHECK(cudaStreamCreateWithFlags(&pair.stream, cudaStreamNonBlocking) ==
          cudaSuccess);
    CHECK_OK(ctrun_ddp_forward_begin(pair.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(pair.ddp, NULL, &err));
    fake_nccl.late_us = LATE_US;
    for (size_t p = 0; p < BOTH; p++) {
        cudaStream_t stream = pair.stream;

        pair.stream = p == A ? late : stream;
        fake_delay(pair.stream, p == A ? LATE_STEPS : 0);
        launch_add(&pair, p, (float)rank + 1, NULL);
        CHECK_OK(ctrun_ddp_grad_ready(pair.ddp, p, pair.stream, &err));
        pair.stream = stream;
    }
    CHECK_OK(ctrun_ddp_backward_end(pair.ddp, pair.stream, &err));
    CHECK(cudaStreamSynchronize(late) == cudaSuccess);
    CHECK(grad(&pair, A) == 1.5f && grad(&pair, B) == 1.5f);
    fake_nccl.late_us = 0;
    CHECK(cudaStreamDestroy(late) == cudaSuccess);
    close_pair(&pair);
    return 0;
}

RANKS_TEST_AROUND(a_forgotten_gradient_is_told_to_every_rank_by_the_next_step, RANKS,
                  begin, NULL)
{
    struct ctrun_error err;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, false, &err));
    CHECK_OK(step(&pair, 1, rank ? "b" : "ab", NULL, &err));
    CHECK(ctrun_ddp_forward_begin(pair.ddp, &err) == CTRUN_E_USAGE);
    CHECK(strstr(err.text, "did not receive grad for rank 1: 0 (a)"));
    CHECK_OK(ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err));
    for (int i = 0; i < 3; i++)
        CHECK_OK(step(&pair, 1, "ab", NULL, &err));
    close_pair(&pair);
    return 0;
}

RANKS_TEST_AROUND(a_lost_rank_ends_the_kernels_that_wait_for_it, RANKS, begin, NULL)
{
    struct ctrun_error err;
    struct pair pair;

    CHECK_OK(open_pair(&pair, rank, false, &err));
    if (rank == 1) {
        ranks_await(STEPPED,
                    1); /* an earlier end could be an error of the step itself */
        _exit(0);
    }
    CHECK_OK(step(&pair, 1, "ab", NULL, &err));
    ranks_signal(STEPPED);
    /* No call asks the group, but this ends. */
    CHECK(cudaStreamSynchronize(pair.stream) == cudaSuccess);
    CHECK(ctrun_ddp_forward_begin(pair.ddp, &err) == CTRUN_E_PEER_LOST);
    CHECK(!fake_counts() || strstr(err.text, "the fake peer is gone"));
    CHECK(ctrun_barrier(pair.group, NULL, &err) == CTRUN_E_PEER_LOST);
    close_pair(&pair);
    return 0;
}

/* ---- Faults at each call ----------------------------------------------------------------- */

/* A training in which the n-th call of rank 0 fails: it returns an error or not, does not hang, and
 * leaves nothing. Returns 2 if there were fewer calls. */
static int live(int rank, void *context)
{
    const int *n = context;
    struct ctrun_error err = {.text = ""};
    struct pair pair;
    int calls;
    int rc;

    (void)fake_fail_at(0);
    rc = open_pair(&pair, rank, false, &err);
    for (int i = 0; rc == 0 && i < 3; i++) {
        if (i == 1 && rank == 0) /* another test has faults while the group is opened */
            (void)fake_fail_at(*n);
        if ((rc = ctrun_ddp_zero_grad(pair.ddp, pair.stream, &err)) == 0)
            rc = step(&pair, 1, "ab", NULL, &err);
    }
    if (rc == 0)
        rc = ctrun_barrier(pair.group, NULL, &err);
    calls = fake_fail_at(0);
    CHECK(rc == 0 || (rc < 0 && err.code == rc && err.text[0]));
    close_pair(&pair);
    return rank == 0 && calls < *n ? 2 : 0;
}

TEST_AROUND(a_fault_at_any_call_is_an_error_and_leaves_nothing, begin, NULL)
{
    int statuses[RANKS] = {0};
    int n = 0;

    do {
        n += 2; /* neighbours are alike, and each try needs two processes */
        (void)ranks_finish(ranks_start(RANKS, live, &n), statuses);
        if (statuses[1] != 0 || (statuses[0] != 0 && statuses[0] != 2 << 8))
            fail_msg("fault %d: %x %x", n, (unsigned)statuses[0],
                     (unsigned)statuses[1]);
    } while (statuses[0] == 0);
    assert_in_range(n, 60, 1000);
}

/* ---- Memory of the host -------------------------------------------------------------------- */

RANKS_TEST_AROUND(calls_take_memory_of_the_host_too, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_nccl(rank);
    const int32_t mine[3] = {rank, 10 + rank, 20 + rank};
    int32_t all[6] = {0};
    double sum[2] = {1, rank};
    struct ctrun_error err;
    struct ctrun_work *work;

    CHECK_OK(ctrun_all_gather(group, mine, all, 3, CTRUN_I32, NULL, &err));
    CHECK(all[0] == 0 && all[2] == 20 && all[3] == 1 && all[5] == 21);
    CHECK_OK(ctrun_all_reduce(group, sum, sum, 2, CTRUN_F64, CTRUN_SUM, NULL, &err));
    CHECK(sum[0] == 2 && sum[1] == 1);
    CHECK_OK(ctrun_all_reduce(group, sum, sum, 2, CTRUN_F64, CTRUN_MAX,
                              IN_BACKGROUND(&work), &err));
    CHECK(ctrun_work_wait(work, &err) == 0 && sum[0] == 2);
    sum[0] = rank;
    CHECK_OK(ctrun_broadcast(group, sum, sum, 2, CTRUN_F64, 1, NULL, &err));
    CHECK(sum[0] == 1);
    if (rank == 0)
        CHECK_OK(ctrun_send(group, all, sizeof all, CTRUN_U8, 1, NULL, &err));
    memset(all, 0, sizeof all);
    if (rank == 1)
        CHECK_OK(ctrun_recv(group, all, sizeof all, CTRUN_U8, 0, NULL, &err));
    CHECK(all[5] == (rank ? 21 : 0));
    /* Only the first two elements. */
    CHECK_OK(
        ctrun_reduce_scatter(group, mine, all, 1, CTRUN_I32, CTRUN_MAX, NULL, &err));
    CHECK(all[0] == (rank ? 11 : 1));
    all[1] = -1;
    CHECK_OK(ctrun_reduce(group, mine, rank ? all : NULL, 3, CTRUN_I32, CTRUN_SUM, 1,
                          NULL, &err));
    CHECK(all[1] == (rank ? 21 : -1));
    CHECK(ctrun_all_to_all(group, mine, all, 1, CTRUN_I32, NULL, &err) ==
          CTRUN_E_UNSUPPORTED);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

/* ---- Messages between devices -------------------------------------------------------------- */

/* More than a chunk of the fake for each rank, so that a send needs its receive. */
enum {
    PART = 40000
};

static void check_parts(struct ctrun_group *group, const int32_t *device, int32_t want,
                        size_t first)
{
    int32_t *host = calloc(PART, sizeof *host);
    struct ctrun_error err;

    CHECK_OK(ct_group_copy(group, host, device, PART * sizeof *host, NULL, &err));
    for (size_t i = 0; i < PART; i++)
        CHECK(host[i] == want + (int32_t)(first + i));
    free(host);
}

RANKS_TEST_AROUND(devices_send_and_receive_at_the_same_time, RANKS, begin, NULL)
{
    struct ctrun_group *group = open_nccl(rank);
    int32_t *host = calloc(2 * PART, sizeof *host);
    int32_t *in, *out;
    struct ctrun_error err;
    struct ctrun_work *work;
    void *block;
    int other = 1 - rank;

    CHECK_OK(ctrun_group_alloc(group, 4 * PART * sizeof *in, &block, &err));
    in = block;
    out = in + 2 * PART;
    for (int i = 0; i < 2 * PART; i++)
        host[i] = rank * 1000000 + i;
    CHECK_OK(ct_group_copy(group, in, host, 2 * PART * sizeof *in, NULL, &err));
    CHECK_OK(ctrun_all_to_all(group, in, out, PART, CTRUN_I32, NULL, &err));
    for (int r = 0; r < 2; r++)
        check_parts(group, out + r * PART, r * 1000000, (size_t)rank * PART);
    CHECK_OK(ct_group_clear(group, out, 2 * PART * sizeof *in, NULL, &err));
    CHECK_OK(ctrun_batch_begin(group, &err));
    CHECK_OK(ctrun_send(group, in + PART, PART, CTRUN_I32, other, NULL, &err));
    CHECK_OK(ctrun_recv(group, out, PART, CTRUN_I32, other, NULL, &err));
    CHECK_OK(ctrun_batch_end(group, IN_BACKGROUND(&work), &err));
    CHECK_OK(ctrun_work_wait_for(work, 20000, &err));
    check_parts(group, out, other * 1000000, PART);
    free(host);
    ctrun_group_close(group);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}
