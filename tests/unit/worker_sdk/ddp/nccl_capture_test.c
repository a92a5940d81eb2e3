/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of DDP in CUDA graphs, over the fakes of tests/lib. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/comm/nccl/nccl_api.h"
#include "worker_sdk/ddp/reducer.h"

enum {
    N = 40, /* elements of each parameter */
    PARAMS = 3,
    RANKS = 2,
    STEPS = 9,
    PLAIN = 5, /* a step between launches */
    TIMEOUT_MS = 30000,
    LAUNCHED = 1, /* counter: rank 0 has made the launch that waits for rank 1 */
};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    return 0;
}

/* ---- A trainer that works only by kernels -------------------------------------------------- */

struct how {
    struct ctrun_ddp_options ddp;
    bool in_own_memory;
    bool clips;
};

struct trainer {
    const struct how *how;
    int rank;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    struct ctrun_zero *zero;    /* if gradients are sharded */
    cudaStream_t stream, other; /* of the gradients; of the group's options */
    float *values[PARAMS], *grads[PARAMS];
    float *poison; /* its value is added to the gradients of parameter 1 */
};

struct kernel {
    float *value, *grad, *poison;
    float factor;
};

/* grad = factor * value - 1 + poison */
static void make_grad(void *context)
{
    struct kernel *kernel = context;
    const float *value = fake_device(kernel->value);
    const float *poison = kernel->poison ? fake_device(kernel->poison) : NULL;
    float *grad = fake_device(kernel->grad);

    for (int i = 0; i < N; i++)
        grad[i] = kernel->factor * value[i] - 1 + (poison ? *poison : 0);
    free(kernel);
}

/* value -= grad / 8 */
static void update(void *context)
{
    struct kernel *kernel = context;
    float *value = fake_device(kernel->value);
    const float *grad = fake_device(kernel->grad);

    for (int i = 0; i < N; i++)
        value[i] -= grad[i] / 8;
    free(kernel);
}

static void launch(struct trainer *t, fake_kernel *run, size_t p)
{
    struct kernel *kernel = malloc(sizeof *kernel);

    CHECK(kernel);
    *kernel = (struct kernel){.value = t->values[p],
                              .grad = ctrun_ddp_grad(t->ddp, p),
                              .poison = p == 1 ? t->poison : NULL,
                              .factor = (float)(t->rank + 1) / (float)(p + 1)};
    fake_launch_copy(t->stream, run, kernel, sizeof *kernel);
}

static void copy(struct trainer *t, void *to, const void *from, size_t bytes)
{
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, t->stream) ==
              cudaSuccess &&
          cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static float *room(size_t count)
{
    void *out;

    CHECK(cudaMalloc(&out, count * sizeof(float)) == cudaSuccess);
    return out;
}

static void open_trainer(struct trainer *t, int rank, const struct how *how)
{
    static const char *const names[PARAMS] = {"a", "b", "c"};
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_zero_options zero = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_param params[PARAMS];
    struct ctrun_error err;
    float first[N] = {0};

    *t = (struct trainer){.how = how, .rank = rank};
    options.backend = "nccl";
    options.timeout_ms = TIMEOUT_MS;
    CHECK(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&t->other, cudaStreamNonBlocking) == cudaSuccess);
    options.stream = t->other;
    t->poison = room(1);
    copy(t, t->poison, first, sizeof *first);
    for (size_t p = 0; p < PARAMS; p++) {
        for (int i = 0; i < N; i++)
            first[i] = (float)(i % 7) / 4 + (float)p;
        t->values[p] = room(N);
        t->grads[p] = room(N);
        copy(t, t->values[p], first, sizeof first);
        params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        params[p].name = names[p];
        params[p].data = t->values[p];
        params[p].dims = 1;
        params[p].sizes[0] = N;
        params[p].grad = how->in_own_memory ? t->grads[p] : NULL;
    }
    t->group = ranks_open(rank, NULL, &options);
    CHECK_OK(ctrun_ddp_create(&t->ddp, t->group, params, PARAMS, &how->ddp, &err));
    if (!how->ddp.shard_gradients)
        return;
    zero.ddp = t->ddp;
    CHECK_OK(ctrun_zero_create(&t->zero, t->group, params, PARAMS, &zero, &err));
}

static void close_trainer(struct trainer *t)
{
    ctrun_zero_destroy(t->zero);
    ctrun_ddp_destroy(t->ddp);
    ctrun_group_close(t->group);
    for (size_t p = 0; p < PARAMS; p++)
        CHECK(cudaFree(t->values[p]) == cudaSuccess &&
              cudaFree(t->grads[p]) == cudaSuccess);
    CHECK(cudaFree(t->poison) == cudaSuccess);
    CHECK(cudaStreamDestroy(t->stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(t->other) == cudaSuccess);
    CHECK(fake_nccl.blocks == 0);
}

/* Bit p of `forgotten`: this rank gives no gradient of p. */
static int make_step_without(struct trainer *t, unsigned forgotten,
                             struct ctrun_error *err)
{
    struct ctrun_call_options share = CTRUN_CALL_OPTIONS_INIT;
    int rc = ctrun_ddp_forward_begin(t->ddp, err);

    share.stream = t->stream;
    if (rc == 0)
        rc = ctrun_ddp_backward_begin(t->ddp, NULL, err);
    for (size_t p = PARAMS; rc == 0 && p-- > 0;) {
        if (forgotten & 1u << p)
            continue;
        launch(t, make_grad, p);
        rc = ctrun_ddp_grad_ready(t->ddp, p, t->stream, err);
    }
    if (rc == 0)
        rc = ctrun_ddp_backward_end(t->ddp, t->stream, err);
    if (rc == 0 && t->how->clips)
        rc = ctrun_ddp_clip_grad_norm(t->ddp, 2, NULL, err);
    for (size_t p = 0; rc == 0 && p < PARAMS; p++)
        launch(t, update, p);
    if (rc == 0 && t->zero) /* the pieces of others get their owners' values */
        rc = ctrun_zero_share(t->zero, &share, err);
    return rc;
}

static int make_step(struct trainer *t, struct ctrun_error *err)
{
    return make_step_without(t, 0, err);
}

static void begin_capture(struct trainer *t)
{
    struct ctrun_error err;

    CHECK_OK(ctrun_ddp_capture_begin(t->ddp, t->stream, &err));
    CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal) ==
          cudaSuccess);
}

static cudaGraphExec_t end_capture(struct trainer *t)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    struct ctrun_error err;

    CHECK(cudaStreamEndCapture(t->stream, &graph) == cudaSuccess);
    CHECK_OK(ctrun_ddp_capture_end(t->ddp, &err));
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return exec;
}

static cudaGraphExec_t capture(struct trainer *t)
{
    struct ctrun_error err;

    begin_capture(t);
    CHECK_OK(make_step(t, &err));
    return end_capture(t);
}

static int replay(struct trainer *t, cudaGraphExec_t graph, struct ctrun_error *err)
{
    CHECK(cudaGraphLaunch(graph, t->stream) == cudaSuccess);
    return ctrun_ddp_replayed(t->ddp, t->stream, err);
}

/* ---- The same bits ------------------------------------------------------------------------- */

/* Two plain steps, then steps from a graph if `in_graph`; one between them and the last step are plain again. */
static void train(int rank, const struct how *how, bool in_graph, float *out)
{
    cudaGraphExec_t graph = NULL;
    struct ctrun_error err;
    struct trainer t;
    int step = 0;

    open_trainer(&t, rank, how);
    for (; step < 2; step++)
        CHECK_OK(make_step(&t, &err));
    if (in_graph)
        graph = capture(&t);
    for (; step < STEPS - 1; step++)
        CHECK_OK(in_graph && step != PLAIN ? replay(&t, graph, &err)
                                           : make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(ctrun_ddp_check_replicas(t.ddp, &err));
    for (size_t p = 0; p < PARAMS; p++)
        copy(&t, out + p * N, t.values[p], N * sizeof *out);
    if (graph)
        CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    close_trainer(&t);
}

static int compare(int rank, void *context)
{
    static float plain[PARAMS * N], graphed[PARAMS * N];

    fake_nccl.late_us = 20;
    train(rank, context, false, plain);
    train(rank, context, true, graphed);
    CHECK(memcmp(plain, graphed, sizeof plain) == 0);
    CHECK(plain[0] > 0 && plain[0] < 1.5f); /* the training had an effect */
    return 0;
}

TEST_AROUND(a_step_in_a_graph_has_the_bits_of_one_without, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};

    how.ddp.first_bucket_bytes = 4 * N; /* two buckets */
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    how.ddp.check_finite = how.clips = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    assert_int_equal(ranks_run(1, compare, &how), 0);
    how.ddp.shard_gradients = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    how.ddp.shard_gradients = false;
    how.ddp.reduce_dtype = CTRUN_BF16;
    how.in_own_memory = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
}

/* What comes next on the stream, maybe a graph, writes where this step's end is fetched from. */
static int end_step(int rank, void *context)
{
    const struct ct_device_found *found;
    const float bad = NAN;
    struct ctrun_error err;
    struct trainer t;

    open_trainer(&t, rank, context);
    CHECK_OK(make_step(&t, &err));
    copy(&t, t.poison, &bad, sizeof bad);
    fake_nccl.late_us = 3000;
    CHECK_OK(make_step(&t, &err));
    CHECK(cudaStreamSynchronize(t.stream) == cudaSuccess);
    CHECK(ctrun_work_test(t.ddp->flag_work, &err) == 1);
    if (t.how->clips) { /* the device has forgotten what was fetched */
        CHECK(ctrun_work_test(t.ddp->checks.found_work, &err) == 1);
        found = fake_device(t.ddp->checks.memory);
        CHECK(t.ddp->checks.found.bad_norm && !found->bad_norm);
    }
    fake_nccl.late_us = 0;
    close_trainer(&t);
    return 0;
}

TEST_AROUND(the_end_of_a_step_is_fetched_before_the_stream_goes_on, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};

    assert_int_equal(ranks_run(RANKS, end_step, &how), 0);
    how.clips = true;
    assert_int_equal(ranks_run(RANKS, end_step, &how), 0);
}

/* ---- What cannot be captured --------------------------------------------------------------- */

static void check_refused(int rc, const struct ctrun_error *err, int code,
                          const char *text)
{
    if (rc == code && strstr(err->text, text))
        return;
    fprintf(stderr, "%d %s; expected %d %s\n", rc, err->text, code, text);
    exit(1);
}

RANKS_TEST_AROUND(what_cannot_be_captured_is_refused_and_nothing_breaks, RANKS, begin,
                  NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .clips = true};
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err;
    cudaGraphExec_t graph;
    struct ctrun_work *work;
    struct trainer t;
    float host = 1;
    double norm;

    open_trainer(&t, rank, &how);
    check_refused(ctrun_ddp_capture_begin(t.ddp, t.stream, &err), &err, CTRUN_E_USAGE,
                  "too early for a capture");
    CHECK_OK(make_step(&t, &err));
    CHECK(ctrun_ddp_capture_begin(t.ddp, t.stream, &err) == CTRUN_E_USAGE);
    CHECK_OK(make_step(&t, &err));
    check_refused(ctrun_ddp_replayed(t.ddp, t.stream, &err), &err, CTRUN_E_USAGE,
                  "no step was captured");
    check_refused(ctrun_ddp_capture_end(t.ddp, &err), &err, CTRUN_E_USAGE,
                  "has not begun");
    begin_capture(&t);
    check_refused(ctrun_ddp_capture_begin(t.ddp, t.stream, &err), &err, CTRUN_E_USAGE,
                  "a capture has begun already");
    check_refused(ctrun_ddp_check_replicas(t.ddp, &err), &err, CTRUN_E_USAGE,
                  "cannot be compared in a capture");
    check_refused(ctrun_ddp_join_begin(t.ddp, NULL, &err), &err, CTRUN_E_USAGE,
                  "a join cannot begin in a capture");
    CHECK_OK(make_step(&t, &err));
    options.stream = t.stream;
    options.work = &work;
    check_refused(ctrun_ddp_clip_grad_norm(t.ddp, 1, &norm, &err), &err,
                  CTRUN_E_UNSUPPORTED, "pass NULL");
    check_refused(ctrun_barrier(t.group, NULL, &err), &err, CTRUN_E_USAGE,
                  "part of the capture of another stream");
    options.work = NULL;
    check_refused(ctrun_barrier(t.group, &options, &err), &err, CTRUN_E_UNSUPPORTED,
                  "barrier: its stream is being captured, and the host cannot wait");
    options.work = &work;
    check_refused(ctrun_all_reduce(t.group, &host, &host, 1, CTRUN_F32, CTRUN_SUM,
                                   &options, &err),
                  &err, CTRUN_E_UNSUPPORTED, "give memory of the device");
    CHECK_OK(ctrun_all_reduce(t.group, t.poison, t.poison, 1, CTRUN_F32, CTRUN_SUM,
                              &options, &err));
    check_refused(ctrun_work_wait(work, &err), &err, CTRUN_E_USAGE,
                  "by ctrun_work_wait_on()");
    CHECK_OK(ctrun_all_reduce(t.group, t.poison, t.poison, 1, CTRUN_F32, CTRUN_SUM,
                              &options, &err));
    CHECK_OK(ctrun_work_wait_on(work, t.stream, &err));
    graph = end_capture(&t); /* no refused call has made the capture invalid */
    for (int i = 0; i < 3; i++)
        CHECK_OK(replay(&t, graph, &err));
    CHECK_OK(make_step(&t, &err));
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

RANKS_TEST_AROUND(options_that_need_the_host_are_named, RANKS, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_powersgd_options powersgd = CTRUN_POWERSGD_OPTIONS_INIT;
    const char *const texts[] = {"find_unused", "static_graph", "powersgd"};

    for (int i = 0; i < 3; i++) {
        struct ctrun_error err;
        struct trainer t;

        how.ddp = (struct ctrun_ddp_options)CTRUN_DDP_OPTIONS_INIT;
        how.ddp.find_unused = i == 0;
        how.ddp.static_graph = i == 1;
        how.ddp.powersgd = i == 2 ? &powersgd : NULL;
        open_trainer(&t, rank, &how);
        check_refused(ctrun_ddp_capture_begin(t.ddp, t.stream, &err), &err,
                      CTRUN_E_UNSUPPORTED, texts[i]);
        close_trainer(&t);
    }
    return 0;
}

/* The program makes a call that CUDA does not permit, or does not finish the step. */
RANKS_TEST_AROUND(a_capture_that_went_wrong_leaves_the_object_alive, RANKS, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_error err;
    cudaGraph_t graph;
    struct trainer t;
    void *memory;

    /* One bucket is sent before the other one is complete. */
    how.ddp.first_bucket_bytes = 4 * N;
    open_trainer(&t, rank, &how);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    begin_capture(&t);
    CHECK(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported);
    check_refused(make_step(&t, &err), &err, CTRUN_E_USAGE, "became invalid by a call");
    CHECK(cudaStreamEndCapture(t.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK_OK(ctrun_ddp_capture_end(t.ddp, &err));
    begin_capture(&t);
    check_refused(
        make_step_without(&t, 1u << 1, &err), &err, CTRUN_E_USAGE,
        "a captured step needs all gradients; these parameters got none: 1 (b)");
    CHECK(cudaStreamEndCapture(t.stream, &graph) == cudaErrorStreamCaptureUnjoined);
    CHECK_OK(ctrun_ddp_capture_end(t.ddp, &err));
    begin_capture(&t);
    CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
    check_refused(ctrun_ddp_clip_grad_norm(t.ddp, 1, NULL, &err), &err, CTRUN_E_USAGE,
                  "clipping cannot run inside a step");
    CHECK(cudaStreamSynchronize(t.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(t.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    check_refused(ctrun_ddp_capture_end(t.ddp, &err), &err, CTRUN_E_USAGE,
                  "the capture ended inside a step");
    for (int i = 0; i < 2; i++) /* the object and the group can still be used */
        CHECK_OK(make_step(&t, &err));
    CHECK_OK(ctrun_ddp_check_replicas(t.ddp, &err));
    close_trainer(&t);
    return 0;
}

/* ---- How a launch ended -------------------------------------------------------------------- */

static int diverge(int rank, void *context)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    const bool by_clip = *(const bool *)context;
    const float nothing = 0, bad = NAN;
    const char *wants[] = {
        "ddp: on rank 0 the gradient of parameter 1 'b' is not finite",
        "ddp: on rank 1 the gradient of parameter 1 'b' is not finite"};
    float values[N];
    cudaGraphExec_t graph;
    struct ctrun_error err;
    struct trainer t;

    how.ddp.check_finite = !by_clip;
    how.clips = by_clip;
    if (by_clip)
        wants[0] = wants[1] =
            "ddp: the gradient of parameter 1 'b' is not finite, or too large to clip";
    open_trainer(&t, rank, &how);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    graph = capture(&t);
    CHECK_OK(replay(&t, graph, &err));
    copy(&t, values, t.values[1], sizeof values);
    for (int i = 0; i < ctrun_group_size(t.group); i++) {
        copy(&t, t.poison, rank == i ? &bad : &nothing, sizeof bad);
        CHECK_OK(replay(&t, graph, &err));
        copy(&t, t.poison, &nothing, sizeof bad);
        copy(&t, t.values[1], values, sizeof values);
        CHECK(replay(&t, graph, &err) == CTRUN_E_DIVERGED);
        CHECK(strcmp(err.text, wants[i]) == 0);
        CHECK_OK(replay(&t, graph, &err));  /* reported only once */
        if (ctrun_group_size(t.group) == 1) /* a plain step tells it by itself */
            continue;
        copy(&t, t.poison, rank == i ? &bad : &nothing, sizeof bad);
        CHECK_OK(make_step(&t, &err));
        copy(&t, t.poison, &nothing, sizeof bad);
        copy(&t, t.values[1], values, sizeof values);
        CHECK(replay(&t, graph, &err) == CTRUN_E_DIVERGED);
        CHECK(strcmp(err.text, wants[i]) == 0);
        CHECK_OK(replay(&t, graph, &err));
    }
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

TEST_AROUND(a_launch_with_nan_is_told_by_the_next, begin, NULL)
{
    bool by_clip = false;

    assert_int_equal(ranks_run(RANKS, diverge, &by_clip), 0);
    assert_int_equal(ranks_run(1, diverge, &by_clip), 0);
    by_clip = true;
    assert_int_equal(ranks_run(RANKS, diverge, &by_clip), 0);
}

RANKS_TEST_AROUND(a_lost_rank_ends_a_launch, RANKS, begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_error err;
    cudaGraphExec_t graph;
    struct trainer t;

    open_trainer(&t, rank, &how);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    graph = capture(&t);
    CHECK_OK(replay(&t, graph, &err));
    CHECK(cudaStreamSynchronize(t.stream) == cudaSuccess);
    if (rank == 1) {
        ranks_await(LAUNCHED,
                    1); /* an earlier end could be an error of the launch itself */
        _exit(0);
    }
    CHECK_OK(replay(&t, graph, &err));
    ranks_signal(LAUNCHED);
    /* No call asks the group, but this ends. */
    CHECK(cudaStreamSynchronize(t.stream) == cudaSuccess);
    CHECK(ctrun_ddp_replayed(t.ddp, t.stream, &err) == CTRUN_E_PEER_LOST);
    CHECK(ctrun_ddp_replayed(t.ddp, t.stream, &err) == CTRUN_E_ABORTED);
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

/* ---- Faults ------------------------------------------------------------------------------ */

static int launch_twice(struct trainer *t, cudaGraphExec_t graph,
                        struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++) {
        /* The program's own call. */
        if (cudaGraphLaunch(graph, t->stream) != cudaSuccess)
            return err->code = -EIO;
        rc = ctrun_ddp_replayed(t->ddp, t->stream, err);
    }
    return rc;
}

/* Captures a step and launches it; any call may fail. */
static int go_through(struct trainer *t, struct ctrun_error *err)
{
    struct ctrun_error ended;
    cudaGraphExec_t graph;
    cudaGraph_t made;
    int rc = ctrun_ddp_capture_begin(t->ddp, t->stream, err);

    if (rc < 0)
        return rc;
    CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal) ==
          cudaSuccess);
    rc = make_step(t, err);
    if (cudaStreamEndCapture(t->stream, &made) != cudaSuccess) {
        CHECK(rc < 0);
        (void)ctrun_ddp_capture_end(t->ddp, &ended);
        return rc;
    }
    CHECK(cudaGraphInstantiate(&graph, made, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);
    CHECK(ctrun_ddp_capture_end(t->ddp, &ended) == 0 || rc < 0);
    if (rc == 0)
        rc = launch_twice(t, graph, err);
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    return rc;
}

struct fault {
    struct how how;
    int at; /* the n-th call of rank 0 fails */
};

/* Returns 2 if there were fewer calls and none failed. */
static int live_with_fault(int rank, void *context)
{
    const struct fault *fault = context;
    struct ctrun_error err = {.text = ""};
    struct trainer t;
    int rc, calls;

    open_trainer(&t, rank, &fault->how);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    t.group->timeout_ms = 3000; /* for a rank whose peer has left */
    (void)fake_fail_at(rank == 0 ? fault->at : 0);
    rc = go_through(&t, &err);
    calls = fake_fail_at(0);
    CHECK(rc == 0 || (rc < 0 && err.code == rc));
    close_trainer(&t);
    return rank == 0 && rc == 0 && calls < fault->at ? 2 : 0;
}

TEST_AROUND(a_fault_at_any_call_is_an_error_and_leaves_nothing, begin, NULL)
{
    const char *every = getenv("CTRUN_TEST_EVERY_FAULT");
    struct fault fault = {.how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .clips = true}};
    int statuses[RANKS] = {0};

    if (!every)
        print_message("every 53rd call only; CTRUN_TEST_EVERY_FAULT=1: each\n");
    fault.how.ddp.check_finite = true;
    do {
        fault.at += every ? 1 : 53;
        (void)ranks_finish(ranks_start(RANKS, live_with_fault, &fault), statuses);
        if (statuses[1] != 0 || (statuses[0] != 0 && statuses[0] != 2 << 8))
            fail_msg("fault %d: %x %x", fault.at, (unsigned)statuses[0],
                     (unsigned)statuses[1]);
    } while (statuses[0] == 0 && fault.at < 5000);
    assert_in_range(fault.at, 106, 4999);
}

/* ---- The group's own thread ---------------------------------------------------------------- */

static _Atomic bool gate;

static void run_gate(void *context)
{
    while (!gate)
        sched_yield();
}

/* While a stream is captured, another call is under way, which the group's thread queries several
 * times. */
RANKS_TEST_AROUND(the_watch_over_calls_spoils_no_capture, RANKS, begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err;
    cudaGraphExec_t graph;
    struct ctrun_work *work;
    cudaStream_t other;
    struct trainer t;
    int before;

    open_trainer(&t, rank, &how);
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(ctrun_ddp_capture_begin(t.ddp, t.stream, &err));
    fake_launch(other, run_gate, NULL);
    options.stream = other;
    options.work = &work;
    CHECK_OK(ctrun_all_reduce(t.group, t.poison, t.poison, 1, CTRUN_F32, CTRUN_SUM,
                              &options, &err));
    CHECK_OK(ctrun_work_wait_on(work, other, &err));
    CHECK(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK_OK(make_step(&t, &err));
    before = fake_nccl.queries;
    while (fake_nccl.queries < before + 3)
        sched_yield(); /* ranks_run() has a deadline */
    graph = end_capture(&t);
    gate = true;
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    CHECK_OK(replay(&t, graph, &err));
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

/* ---- The launch and the work before the capture --------------------------------------------- */

static _Atomic int fills, kernels;

/* The second fill is the last work that clipping puts on the group's stream. */
static void hold_second_fill(void)
{
    if (++fills == 2)
        run_gate(NULL);
}

static void count_kernel(void *context)
{
    free(context);
    kernels++;
}

RANKS_TEST_AROUND(a_launch_waits_for_the_work_before_the_capture, RANKS, begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_error err;
    cudaGraphExec_t graph;
    struct trainer t;
    char *none = malloc(1);

    open_trainer(&t, rank, &how);
    CHECK_OK(make_step(&t, &err));
    CHECK_OK(make_step(&t, &err));
    CHECK(cudaStreamSynchronize(t.stream) == cudaSuccess);
    fake_nccl.on_fill = hold_second_fill;
    CHECK_OK(ctrun_ddp_clip_grad_norm(t.ddp, 2, NULL, &err));
    begin_capture(&t);
    fake_launch_copy(t.stream, count_kernel, none, 1);
    CHECK_OK(make_step(&t, &err));
    graph = end_capture(&t);
    CHECK(cudaGraphLaunch(graph, t.stream) == cudaSuccess);
    while (!fake_nccl.waits && !kernels)
        sched_yield(); /* ranks_run() has a deadline */
    CHECK(kernels == 0);
    gate = true;
    CHECK_OK(ctrun_ddp_replayed(t.ddp, t.stream, &err));
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    close_trainer(&t);
    CHECK(kernels == 1 && fills > 2);
    return 0;
}
