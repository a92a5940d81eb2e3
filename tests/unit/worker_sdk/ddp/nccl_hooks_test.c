/* SPDX-License-Identifier: Apache-2.0 */
/* What DDP does besides averages, and ZeRO-1, on an NCCL group over the fakes of tests/lib. Each
 * story also runs on the host back end, and gives the same bits there. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

enum {
    N = 12,
    M = 20,
    PARAMS = 3, /* a matrix, a vector, and a matrix that is too small to compress */
    ALL = N * M + N + 4,
    BUFFER = PARAMS, /* one number more, after the values */
    RANKS = 2,
    STEPS = 6,
    TIMEOUT_MS = 30000,
    COPY_MS = 20, /* at most, because a yield takes long on a busy machine */
    LATE_US = 3000,
    LATE_STEPS =
        30, /* what does not wait for a stream that is so late comes before it */
};

static const size_t lengths[PARAMS] = {N * M, N, 4};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    return 0;
}

/* ---- A trainer whose memory is the host's or the device's --------------------------------- */

enum layout {
    IN_BUCKETS,
    IN_ONE_ARRAY, /* gradients in the caller's memory, in the order of the parameters */
    APART,        /* with gaps, in another order */
    LAYOUTS
};

/* The settings of a story. */
struct how {
    struct ctrun_ddp_options ddp;
    struct ctrun_powersgd_options powersgd;
    enum layout layout;
    int nan_step;        /* the step with a NaN in the last rank's matrix; 0: none */
    bool use_hook;       /* the result is the largest of all ranks, negated */
    bool by_active;      /* a join that divides by the ranks with data */
    int forget_step;     /* the step without the vector's gradient on rank 0; 0: none */
    int fail_at;         /* the n-th call of rank 0's fakes fails; 0: none */
    uint64_t timeout_ms; /* 0: TIMEOUT_MS */
};

struct trainer {
    bool is_device;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    struct ctrun_zero *zero;
    cudaStream_t stream, first; /* of the gradients; of the group's options */
    float *values, *grads;      /* one block each, of the host or of the device */
    struct ctrun_param params[PARAMS + 1];
    struct how how;
};

/* A copy as a kernel makes it. It is not a call of CUDA, so a fault never hits it. */
struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* How slow a copy is: what does not wait for it reads old values. */
static int copy_yields;

static void run_copy(void *context)
{
    struct copy *copy = context;
    void *from = (void *)(uintptr_t)copy->from; /* only read */
    const uint64_t end_ms = ct_deadline_ms(COPY_MS);

    for (int i = 0; i < copy_yields && ct_left_ms(end_ms) > 0; i++)
        sched_yield();

    memcpy(fake_device(copy->to) ? fake_device(copy->to) : copy->to,
           fake_device(from) ? fake_device(from) : from, copy->bytes);
    free(copy);
}

static void put_on(const struct trainer *t, cudaStream_t stream, void *to,
                   const void *from, size_t bytes)
{
    struct copy *copy = malloc(sizeof *copy);

    CHECK(copy);
    *copy = (struct copy){to, from, bytes};
    if (t->is_device)
        fake_launch(stream, run_copy, copy);
    else
        run_copy(copy);
}

static void put(const struct trainer *t, void *to, const void *from, size_t bytes)
{
    put_on(t, t->stream, to, from, bytes);
}

static void fetch(const struct trainer *t, void *to, const void *from, size_t bytes)
{
    put(t, to, from, bytes);
    CHECK(!t->is_device || cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static float *room(const struct trainer *t, size_t count)
{
    void *out = NULL;

    if (!t->is_device)
        out = calloc(count, sizeof(float));
    else
        CHECK(cudaMalloc(&out, count * sizeof(float)) == cudaSuccess);
    CHECK(out);
    return out;
}

/* Where gradient p begins in a block of 2 * ALL. */
static size_t own_place(enum layout layout, size_t p)
{
    static const size_t dense[PARAMS] = {0, N * M, N * M + N};
    static const size_t apart[PARAMS] = {100, 0, 50}; /* 1 | gap | 2 | gap | 0 */

    return layout == APART ? apart[p] : dense[p];
}

static void describe(struct trainer *t)
{
    static const char *const names[PARAMS] = {"wide", "bias", "small"};

    for (size_t p = 0; p < PARAMS; p++) {
        struct ctrun_param *param = &t->params[p];

        *param = (struct ctrun_param)CTRUN_PARAM_INIT;
        param->name = names[p];
        param->data = t->values + own_place(IN_ONE_ARRAY, p);
        param->dims = p == 1 ? 1 : 2;
        param->sizes[0] = p == 2 ? 2 : N;
        param->sizes[1] = p == 2 ? 2 : M;
        if (t->how.layout != IN_BUCKETS)
            param->grad = t->grads + own_place(t->how.layout, p);
    }
    t->params[BUFFER] = (struct ctrun_param)CTRUN_PARAM_INIT;
    t->params[BUFFER].name = "running_mean";
    t->params[BUFFER].data = t->values + ALL;
    t->params[BUFFER].no_grad = t->params[BUFFER].is_buffer = true;
}

static int make_ddp(struct trainer *t, struct ctrun_error *err)
{
    struct ctrun_ddp_options options = t->how.ddp;

    options.first_bucket_bytes = 64; /* two buckets after the rebuild */
    if (t->how.powersgd.size)
        options.powersgd = &t->how.powersgd;
    return ctrun_ddp_create(&t->ddp, t->group, t->params, PARAMS + 1, &options, err);
}

static int open_trainer(struct trainer *t, int rank, bool is_device,
                        const struct how *how, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = ranks_place(rank, NULL);
    float first[ALL];
    int rc;

    *t = (struct trainer){.is_device = is_device, .how = *how};
    options.timeout_ms = how->timeout_ms ? how->timeout_ms : TIMEOUT_MS;
    options.backend = is_device ? "nccl" : "host";
    if (is_device)
        CHECK(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) ==
                  cudaSuccess &&
              cudaStreamCreateWithFlags(&t->first, cudaStreamNonBlocking) ==
                  cudaSuccess);
    options.stream = t->first;
    t->values = room(t, ALL + 1);
    t->grads = room(t, 2 * ALL);
    for (int i = 0; i < ALL; i++)
        first[i] = (float)(rank + i);
    fetch(t, t->values, first, sizeof first);
    describe(t);
    if ((rc = ct_group_open(&t->group, &place, &options, err)) < 0)
        return rc;
    return make_ddp(t, err);
}

static void close_trainer(struct trainer *t)
{
    ctrun_zero_destroy(t->zero);
    ctrun_ddp_destroy(t->ddp);
    ctrun_group_close(t->group);
    if (!t->is_device) {
        free(t->values);
        free(t->grads);
        return;
    }
    CHECK(cudaFree(t->values) == cudaSuccess && cudaFree(t->grads) == cudaSuccess);
    CHECK(cudaStreamDestroy(t->stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(t->first) == cudaSuccess);
    CHECK(fake_nccl.blocks == 0);
}

/* A fixed number from about -1 to 1 for each (seed, i). */
static float noise(unsigned seed, size_t i)
{
    uint32_t x = (uint32_t)(seed * 2654435761u + i * 40503u + 12345u);

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    x ^= x >> 16;
    return (float)((double)x / 2147483648.0 - 1.0);
}

/* Kernels read `made` later, so it is static. */
static int backward(struct trainer *t, int rank, int step, struct ctrun_error *err)
{
    static float made[STEPS + 1][PARAMS][N * M];
    int rc = ctrun_ddp_backward_begin(t->ddp, NULL, err);

    for (size_t p = PARAMS; rc == 0 && p-- > 0;) {
        float *grad = made[step][p];

        for (size_t i = 0; i < lengths[p]; i++)
            grad[i] = noise((unsigned)(100 * step + 10 * rank) + (unsigned)p, i);
        if (p == 0 && step == t->how.nan_step && step && rank == RANKS - 1)
            grad[7] = NAN;
        if (p == 1 && step == t->how.forget_step && step && rank == 0)
            continue;
        put(t, ctrun_ddp_grad(t->ddp, p), grad, lengths[p] * sizeof *grad);
        rc = ctrun_ddp_grad_ready(t->ddp, p, t->stream, err);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(t->ddp, t->stream, err);
}

static int make_step(struct trainer *t, int rank, int step, struct ctrun_error *err)
{
    int rc = ctrun_ddp_forward_begin(t->ddp, err);

    return rc < 0 ? rc : backward(t, rank, step, err);
}

static void fetch_grads(const struct trainer *t, float *out)
{
    for (size_t p = 0; p < PARAMS; out += lengths[p++])
        fetch(t, out, ctrun_ddp_grad(t->ddp, p), lengths[p] * sizeof *out);
}

/* Equal bits, or both NaN. */
static bool are_alike(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* ---- Hooks ------------------------------------------------------------------------------- */

static int take_largest(void *context, struct ctrun_group *group,
                        const struct ctrun_bucket *bucket, struct ctrun_work **work,
                        struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    const struct trainer *t = context;

    CHECK(bucket->stream == t->stream);
    options.work = work;
    return ctrun_all_reduce(group, bucket->data, bucket->data, bucket->elements,
                            bucket->dtype, CTRUN_MAX, &options, err);
}

struct negation {
    float *data;
    size_t count;
};

static void run_negation(void *context)
{
    struct negation *what = context;
    float *at = fake_device(what->data) ? fake_device(what->data) : what->data;

    for (size_t i = 0; i < what->count; i++)
        at[i] = -at[i];
    free(what);
}

static int negate(void *context, const struct ctrun_bucket *bucket,
                  struct ctrun_error *err)
{
    struct negation *what = malloc(sizeof *what);
    const struct trainer *t = context;

    CHECK(what && bucket->stream == t->stream);
    *what = (struct negation){bucket->data, bucket->elements};
    if (t->is_device)
        fake_launch(bucket->stream, run_negation, what);
    else
        run_negation(what);
    return 0;
}

/* Writes the gradients of all steps, one after the other. */
static void tell(int rank, bool is_device, const struct how *story, float *out)
{
    static float mean[STEPS + 1];
    struct how how = *story;
    struct ctrun_error err;
    struct trainer t;
    float buffer;

    if (how.use_hook) {
        how.ddp.hook = take_largest;
        how.ddp.hook_done = negate;
        how.ddp.hook_context = &t;
    }
    CHECK_OK(open_trainer(&t, rank, is_device, &how, &err));
    for (int step = 1; step <= STEPS; step++, out += ALL) {
        mean[step] = (float)(100 * rank + step);
        put_on(&t, step == 1 ? t.first : t.stream, t.values + ALL, &mean[step],
               sizeof *mean);
        CHECK_OK(make_step(&t, rank, step, &err));
        fetch_grads(&t, out);
        fetch(&t, &buffer, t.values + ALL, sizeof buffer);
        CHECK(buffer == (float)step); /* from rank 0, in the order of its stream */
    }
    close_trainer(&t);
}

static float host_grads[STEPS * ALL], device_grads[STEPS * ALL];

static int compare(int rank, void *context)
{
    const struct how *how = context;

    tell(rank, false, how, host_grads);
    copy_yields = how->use_hook ? 500 : 0;
    fake_nccl.late_us = 30;
    tell(rank, true, how, device_grads);
    for (int i = 0; i < STEPS; i++)
        if (!are_alike(host_grads + i * ALL, device_grads + i * ALL, ALL)) {
            fprintf(stderr, "rank %d: step %d differs\n", rank, i + 1);
            return 1;
        }
    return 0;
}

/* Runs the story with each layout of the gradients. */
static void play(struct how how)
{
    for (enum layout layout = IN_BUCKETS; layout < LAYOUTS; layout++) {
        how.layout = layout;
        assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    }
}

TEST_AROUND(gradients_in_the_callers_memory_are_averaged_there, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};

    play(how);
    how.ddp.find_unused = true; /* the host waits for the device */
    play(how);
}

TEST_AROUND(halves_have_the_bits_of_the_host, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};

    how.ddp.reduce_dtype = CTRUN_F16;
    play(how);
    how.ddp.reduce_dtype = CTRUN_BF16;
    play(how);
}

/* A hook that does all by a kernel of its own. */
static void run_halving(void *context)
{
    struct negation *what = context;
    float *at = fake_device(what->data);

    for (size_t i = 0; i < what->count; i++)
        at[i] = at[i] / 2 + 1;
    free(what);
}

static int halve(void *context, struct ctrun_group *group,
                 const struct ctrun_bucket *bucket, struct ctrun_work **work,
                 struct ctrun_error *err)
{
    struct negation *what = malloc(sizeof *what);

    CHECK(what);
    *what = (struct negation){bucket->data, bucket->elements};
    fake_launch(bucket->stream, run_halving, what);
    return 0;
}

/* Two gradients of one bucket: the vector is made on a late stream, or is zero, and the group is late with the zeroes.
 */
static int mix_streams(int rank, void *context)
{
    const bool *is_zero = context;
    const uint8_t used[] = {1, 0, 1, 1};
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    float made[N * M], got[ALL];
    struct ctrun_error err;
    struct trainer t;

    how.ddp.hook = halve;
    how.ddp.find_unused = *is_zero;
    for (size_t i = 0; i < N * M; i++)
        made[i] = 4;
    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(t.ddp, *is_zero ? used : NULL, &err));
    fake_nccl.late_us = LATE_US;
    fake_delay(t.first, LATE_STEPS);
    CHECK_OK(ct_group_clear(t.group, NULL, 0, t.first, &err));
    for (size_t i = 0; i < PARAMS; i++) {
        const size_t p = (i + 1) % PARAMS; /* the vector is the first */
        cudaStream_t stream = p == 1 ? t.first : t.stream;

        if (p == 1 && *is_zero)
            continue;
        put_on(&t, stream, ctrun_ddp_grad(t.ddp, p), made, lengths[p] * sizeof *made);
        CHECK_OK(ctrun_ddp_grad_ready(t.ddp, p, stream, &err));
    }
    CHECK_OK(ctrun_ddp_backward_end(t.ddp, t.stream, &err));
    CHECK(cudaStreamSynchronize(t.first) == cudaSuccess);
    CHECK_OK(ctrun_barrier(t.group, NULL, &err));
    fetch_grads(&t, got);
    for (size_t i = 0; i < ALL; i++)
        CHECK(got[i] == (*is_zero && i >= N * M && i < N * M + N ? 1 : 3));
    fake_nccl.late_us = 0;
    close_trainer(&t);
    return 0;
}

TEST_AROUND(the_kernels_of_a_hook_come_behind_all_gradients, begin, NULL)
{
    for (int i = 0; i < 2; i++) {
        bool is_zero = i;

        assert_int_equal(ranks_run(1, mix_streams, &is_zero), 0);
    }
}

TEST_AROUND(a_hook_runs_in_the_order_of_the_streams, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .use_hook = true};

    play(how);
    how.layout = IN_BUCKETS;
    how.ddp.find_unused = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
}

TEST_AROUND(powersgd_has_the_bits_of_the_host, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT,
                      .powersgd = CTRUN_POWERSGD_OPTIONS_INIT};

    how.powersgd.start_step = 2;
    how.powersgd.rank = 3;
    play(how);
    how.layout = IN_BUCKETS;
    how.nan_step = 4; /* the NaN must not stay after its step */
    how.powersgd.epsilon = 1e-3;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    /* The NaN is in the start of the next step. */
    how.powersgd.no_error_feedback = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
    how.powersgd.no_warm_start = true;
    how.nan_step = 0;
    how.ddp.divide_by_caller = true;
    assert_int_equal(ranks_run(RANKS, compare, &how), 0);
}

RANKS_TEST_AROUND(a_driver_that_takes_no_kernels_is_told, RANKS, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_error err;
    struct trainer t;

    fake_nccl.no_driver = true;
    how.ddp.reduce_dtype = CTRUN_BF16;
    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK(make_step(&t, rank, 1, &err) == CTRUN_E_UNSUPPORTED);
    CHECK(strstr(err.text, "the driver cannot load the kernels of ctrun"));
    close_trainer(&t);
    return 0;
}

/* ---- Gradients of the caller's ------------------------------------------------------------ */

RANKS_TEST_AROUND(memory_for_gradients_that_does_not_fit_is_refused, RANKS, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .layout = IN_ONE_ARRAY};
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    struct ctrun_error err;
    struct trainer t;

    CHECK_OK(open_trainer(&t, rank, false, &how, &err));
    for (int step = 1; step <= 3; step++) {
        CHECK_OK(make_step(&t, rank, step, &err));
        for (size_t p = 0; p < PARAMS; p++)
            CHECK(ctrun_ddp_grad(t.ddp, p) == t.params[p].grad);
    }
    CHECK_OK(ctrun_ddp_get_stats(t.ddp, &stats, &err));
    CHECK(!stats.has_rebuilt_buckets && stats.bucket_count == 2);
    CHECK(stats.bucket_bytes[0] == sizeof(float) * (4 + N));
    ctrun_ddp_destroy(t.ddp);
    t.params[1].grad = (float *)t.params[0].grad + N * M - 1;
    CHECK(make_ddp(&t, &err) == -EINVAL);
    CHECK(strstr(err.text, "params[0] 'wide' and params[1] 'bias' overlap"));
    t.params[1].grad = NULL;
    CHECK(make_ddp(&t, &err) == -EINVAL);
    CHECK(strstr(err.text, "params[1] 'bias' has no memory for its gradient"));
    t.how.layout = rank ? APART : IN_ONE_ARRAY;
    describe(&t);
    /* Only on rank 0 they are adjacent, as an allocator may place them by chance: each is sent
     * alone. */
    CHECK_OK(make_ddp(&t, &err));
    for (int step = 1; step <= 3; step++)
        CHECK_OK(make_step(&t, rank, step, &err));
    CHECK_OK(ctrun_ddp_get_stats(t.ddp, &stats, &err));
    CHECK(stats.bucket_count == PARAMS);
    ctrun_ddp_destroy(t.ddp);
    if (rank)
        for (size_t p = 0; p < PARAMS; p++)
            t.params[p].grad = NULL;
    CHECK(make_ddp(&t, &err) == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text,
                 "ddp: grad of the parameters differs between rank 0 and rank 1"));
    close_trainer(&t);
    return 0;
}

/* Rank 0 gives no gradient of one parameter. A device reports this in the next step. */
static int forget(int rank, void *context)
{
    for (int is_device = 0; is_device < 2; is_device++) {
        struct how how = *(const struct how *)context;
        struct ctrun_error err;
        struct trainer t;

        if (how.use_hook) {
            how.ddp.hook = take_largest;
            how.ddp.hook_context = &t;
        }
        CHECK_OK(open_trainer(&t, rank, is_device, &how, &err));
        CHECK_OK(make_step(&t, rank, 1, &err));
        CHECK(make_step(&t, rank, how.forget_step, &err) ==
              (is_device ? 0 : CTRUN_E_USAGE));
        CHECK(!is_device || make_step(&t, rank, 3, &err) == CTRUN_E_USAGE);
        CHECK(strstr(err.text, "for rank 0: 1 (bias)"));
        CHECK_OK(make_step(&t, rank, 3, &err));
        close_trainer(&t);
    }
    return 0;
}

TEST_AROUND(a_forgotten_gradient_is_told_beside_hooks_and_own_memory, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .forget_step = 2};

    how.layout = IN_ONE_ARRAY;
    assert_int_equal(ranks_run(RANKS, forget, &how), 0);
    how.layout = IN_BUCKETS;
    how.use_hook = true;
    assert_int_equal(ranks_run(RANKS, forget, &how), 0);
}

/* The fake has 256 pieces of memory; 200 of them are used by others. */
RANKS_TEST_AROUND(an_object_frees_the_memory_that_it_took, RANKS, begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_error err;
    float *others[200];
    struct trainer t;

    options.whole_params = true;
    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        others[i] = room(&t, 1);
    for (int i = 0; i < 90; i++) {
        ctrun_ddp_destroy(t.ddp);
        ctrun_zero_destroy(t.zero);
        t.how.powersgd = (struct ctrun_powersgd_options)CTRUN_POWERSGD_OPTIONS_INIT;
        t.how.powersgd.size = i % 2 ? sizeof t.how.powersgd : 0;
        t.how.ddp.reduce_dtype = i % 2 ? CTRUN_F32 : CTRUN_F16;
        CHECK_OK(make_ddp(&t, &err));
        CHECK_OK(ctrun_zero_create(&t.zero, t.group, t.params, PARAMS, &options, &err));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(cudaFree(others[i]) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

/* ---- Uneven inputs, and ZeRO-1 ------------------------------------------------------------ */

/* value -= grad / 8, of all values or of our share of them. */
static int update(void *context, struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct trainer *t = context;
    float values[ALL], grads[ALL];

    fetch(t, values, t->values, sizeof values);
    fetch_grads(t, grads);
    for (int i = 0; i < ALL && !t->zero; i++)
        values[i] -= grads[i] / 8;
    for (size_t i = 0; t->zero && ctrun_zero_piece(t->zero, i, &piece, err) > 0; i++)
        for (size_t k = 0; k < piece.length; k++) {
            size_t at = own_place(IN_ONE_ARRAY, piece.param) + piece.offset + k;

            values[at] -= grads[at] / 8;
        }
    fetch(t, t->values, values, sizeof values);
    options.stream = t->stream;
    return t->zero ? ctrun_zero_share(t->zero, &options, err) : 0;
}

/* Rank r makes 1 + 2 r steps. `out`: the values at the end. */
static int live(int rank, bool is_device, const struct how *how, float *out,
                struct ctrun_error *err)
{
    struct ctrun_join_options join = CTRUN_JOIN_OPTIONS_INIT;
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    const bool is_sharded = how->ddp.shard_gradients;
    const bool with_zero = how->layout != IN_BUCKETS || is_sharded;
    struct trainer t;
    int rc = open_trainer(&t, rank, is_device, how, err);

    options.whole_params = how->layout == APART && !is_sharded;
    options.ddp = is_sharded ? t.ddp : NULL;
    join.divide_by_active = how->by_active;
    join.on_step = update;
    join.context = &t;
    /* Another test has faults while the group is opened. */
    if (how->fail_at && rank == 0 && is_device)
        (void)fake_fail_at(how->fail_at);
    if (rc == 0 && with_zero)
        rc = ctrun_zero_create(&t.zero, t.group, t.params, PARAMS + is_sharded,
                               &options, err);
    if (rc == 0)
        rc = ctrun_ddp_join_begin(t.ddp, &join, err);
    for (int step = 1; rc == 0 && step <= 1 + 2 * rank; step++)
        if ((rc = make_step(&t, rank, step, err)) == 0)
            rc = update(&t, err);
    if (rc == 0)
        rc = ctrun_ddp_join_end(t.ddp, err);
    if (rc == 0 && out)
        fetch(&t, out, t.values, ALL * sizeof *out);
    close_trainer(&t);
    return rc;
}

static int join_both(int rank, void *context)
{
    float on_host[ALL], on_device[ALL], first;
    const struct how *how = context;
    struct ctrun_error err;

    fake_nccl.late_us = 30;
    CHECK_OK(live(rank, false, how, on_host, &err));
    CHECK_OK(live(rank, true, how, on_device, &err));
    CHECK(memcmp(on_host, on_device, sizeof on_host) == 0);
    /* Step 1 has two ranks with data, the others have one. */
    first = 0 - (noise(100, 0) + noise(110, 0)) / 2 / 8;
    for (int step = 2; step <= 3; step++)
        first -= noise((unsigned)(100 * step + 10), 0) / (how->by_active ? 1 : 2) / 8;
    CHECK(fabsf(on_device[0] - first) < 1e-5f);
    return 0;
}

TEST_AROUND(ranks_without_data_join_in_the_steps_of_the_others, begin, NULL)
{
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};

    for (enum layout layout = IN_BUCKETS; layout < LAYOUTS; layout++) {
        /* The last two with ZeRO: equal shares, then whole parameters. */
        how.layout = layout;
        how.by_active = layout != IN_ONE_ARRAY;
        how.ddp.find_unused = layout == APART;
        how.ddp.shard_gradients = false;
        assert_int_equal(ranks_run(RANKS, join_both, &how), 0);
        how.ddp.shard_gradients = true; /* with ZeRO */
        assert_int_equal(ranks_run(RANKS, join_both, &how), 0);
    }
}

/* Rank 1 makes steps, rank 0 only joins. Then rank 1 has no gradient of a parameter, which a device
 * reports one step later. */
RANKS_TEST_AROUND(a_forgotten_gradient_in_a_join_is_told_by_the_next_forward, RANKS,
                  begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_error err;
    struct trainer t;

    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK_OK(ctrun_ddp_join_begin(t.ddp, NULL, &err));
    if (rank == 1) {
        CHECK_OK(make_step(&t, rank, 1, &err));
        CHECK_OK(make_step(&t, rank, 2, &err));
        CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(t.ddp, NULL, &err));
        CHECK_OK(ctrun_ddp_grad_ready(t.ddp, 0, t.stream, &err));
        CHECK_OK(ctrun_ddp_backward_end(t.ddp, t.stream, &err));
        CHECK(ctrun_ddp_forward_begin(t.ddp, &err) == CTRUN_E_USAGE);
        CHECK(strstr(err.text, "for rank 1: 1 (bias), 2 (small)"));
        CHECK_OK(make_step(&t, rank, 3, &err));
    }
    CHECK_OK(ctrun_ddp_join_end(t.ddp, &err));
    CHECK_OK(make_step(&t, rank, 4, &err)); /* the object can still be used */
    close_trainer(&t);
    return 0;
}

/* What runs on the stream after a share sees the values of the other ranks. */
static int share(int rank, void *context)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_zero_options zero = CTRUN_ZERO_OPTIONS_INIT;
    float mine[ALL], values[ALL];
    struct ctrun_error err;
    struct trainer t;

    zero.whole_params = true; /* rank 0 has the matrix, rank 1 the others */
    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK_OK(ctrun_zero_create(&t.zero, t.group, t.params, PARAMS, &zero, &err));
    for (int i = 0; i < ALL; i++)
        mine[i] = (float)(1000 * rank + i);
    fake_nccl.late_us = 3000;
    put(&t, t.values, mine, sizeof mine);
    options.stream = t.stream;
    CHECK_OK(ctrun_zero_share(t.zero, &options, &err));
    fetch(&t, values, t.values, sizeof values);
    for (int i = 0; i < ALL; i++)
        CHECK(values[i] == (float)(i < N * M ? i : 1000 + i));
    fake_nccl.late_us = 0;
    close_trainer(&t);
    return 0;
}

TEST_AROUND(a_share_is_made_in_the_order_of_the_stream, begin, NULL)
{
    assert_int_equal(ranks_run(RANKS, share, NULL), 0);
}

/* The state of the optimizer may be on the host or on the device. */
RANKS_TEST_AROUND(the_state_of_zero_moves_between_host_and_device, RANKS, begin, NULL)
{
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    float whole[ALL], all[ALL] = {0}, mine[ALL], *device;
    struct ctrun_error err;
    struct trainer t;

    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK_OK(ctrun_zero_create(&t.zero, t.group, t.params, PARAMS, NULL, &err));
    device = room(&t, ALL);
    for (int i = 0; i < ALL; i++) { /* the group's stream has the state later */
        whole[i] = -(float)i;
        mine[i] = (float)i;
    }
    put(&t, device, whole, sizeof whole);
    CHECK(cudaStreamSynchronize(t.stream) == cudaSuccess);
    fake_nccl.late_us = LATE_US;
    fake_delay(t.first, LATE_STEPS);
    put_on(&t, t.first, device, mine, sizeof mine);
    CHECK_OK(ctrun_zero_pick_state(t.zero, device, whole, CTRUN_F32, &err));
    CHECK(memcmp(whole, mine + (rank ? ALL - ctrun_zero_length(t.zero) : 0),
                 ctrun_zero_length(t.zero) * sizeof *mine) == 0);
    fake_delay(t.first, LATE_STEPS);
    put_on(&t, t.first, device, whole, sizeof whole);
    CHECK_OK(
        ctrun_zero_gather_state(t.zero, device, rank ? NULL : all, CTRUN_F32, 0, &err));
    CHECK(rank != 0 || memcmp(all, mine, sizeof all) == 0);
    fake_nccl.late_us = 0;
    memcpy(whole, mine, sizeof whole);
    memset(all, 0, sizeof all);
    CHECK_OK(ctrun_zero_pick_state(t.zero, whole, device, CTRUN_F32, &err));
    CHECK_OK(
        ctrun_zero_gather_state(t.zero, device, rank ? NULL : all, CTRUN_F32, 0, &err));
    CHECK(rank != 0 || memcmp(all, whole, sizeof all) == 0);
    fetch(&t, mine, device, ctrun_zero_length(t.zero) * sizeof *mine);
    CHECK_OK(ctrun_zero_gather_state(t.zero, mine, rank ? device : NULL, CTRUN_F32, 1,
                                     &err));
    if (rank == 1)
        fetch(&t, all, device, sizeof all);
    CHECK(rank != 1 || memcmp(all, whole, sizeof all) == 0);
    CHECK(cudaFree(device) == cudaSuccess);
    close_trainer(&t);
    return 0;
}

/* ---- Faults ------------------------------------------------------------------------------ */

/* A training with all of this, in which the n-th call of rank 0 fails. Returns 2 if there were
 * fewer calls. */
static int live_with_fault(int rank, void *context)
{
    const struct how *how = context;
    struct ctrun_error err = {.text = ""};
    int calls, rc;

    (void)fake_fail_at(0);
    rc = live(rank, true, how, NULL, &err);
    calls = fake_fail_at(0);
    CHECK(rc == 0 || (rc < 0 && err.code == rc && err.text[0]));
    /* Without a fault it fails only if the other rank is late. */
    return rank == 0 && rc == 0 && calls < how->fail_at ? 2 : 0;
}

TEST_AROUND(a_fault_at_any_call_is_an_error_and_leaves_nothing, begin, NULL)
{
    const char *every = getenv("CTRUN_TEST_EVERY_FAULT");
    struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT, .layout = APART};
    int statuses[RANKS] = {0};

    if (!every)
        print_message("every 41st call only; CTRUN_TEST_EVERY_FAULT=1: each\n");
    how.ddp.reduce_dtype = CTRUN_BF16;
    how.by_active = true;
    how.timeout_ms = 3000; /* for a rank whose peer has left */
    do {
        how.fail_at += every ? 1 : 41;
        (void)ranks_finish(ranks_start(RANKS, live_with_fault, &how), statuses);
        if (statuses[1] != 0 || (statuses[0] != 0 && statuses[0] != 2 << 8))
            fail_msg("fault %d: %x %x", how.fail_at, (unsigned)statuses[0],
                     (unsigned)statuses[1]);
    } while (statuses[0] == 0 && how.fail_at < 5000);
    assert_in_range(how.fail_at, 300, 4999);
}

/* ---- Going on without a rank --------------------------------------------------------------- */

enum {
    STEPPED = 3 /* counter: ranks that have made their step */
};

/* Rank 1 dies; the others shrink the group and train on. */
RANKS_TEST_AROUND(who_is_left_trains_on_with_a_communicator_of_its_own, 3, begin, NULL)
{
    static const int left[] = {0, 2};
    const struct how how = {.ddp = CTRUN_DDP_OPTIONS_INIT};
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *next;
    struct ctrun_error err;
    struct trainer t;
    float sum = (float)rank;

    CHECK_OK(open_trainer(&t, rank, true, &how, &err));
    CHECK_OK(make_step(&t, rank, 1, &err));
    ranks_signal(STEPPED);
    ranks_await(STEPPED, 3); /* an earlier end could be an error of a step */
    if (rank == 1)
        _exit(0);
    CHECK(ctrun_ddp_forward_begin(t.ddp, &err) == CTRUN_E_PEER_LOST);
    ctrun_ddp_destroy(t.ddp);
    t.ddp = NULL;
    place.ranks = left;
    place.rank_count = 2;
    place.epoch = 1;
    CHECK_OK(ct_group_shrink(&next, &place, t.group, NULL, &err));
    ctrun_group_close(t.group);
    t.group = next;
    CHECK(ctrun_group_size(next) == 2 && ctrun_group_rank(next) == rank / 2);
    CHECK_OK(ctrun_all_reduce(next, &sum, &sum, 1, CTRUN_F32, CTRUN_SUM, NULL, &err));
    CHECK(sum == 2);
    CHECK_OK(make_ddp(&t, &err));
    CHECK_OK(make_step(&t, rank, 2, &err));
    close_trainer(&t);
    return 0;
}

/* ---- Several roots ------------------------------------------------------------------------- */

enum {
    MANY = 5
};

struct meeting {
    int version;
    const char *ranks_per_root;
    int roots;
    const char *makers; /* by rank: 'x' makes an id */
};

static int meet_at_roots(int rank, void *context)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct meeting *meeting = context;
    struct ctrun_group *group;
    struct ctrun_error err;
    int sum = rank;

    fake_nccl.version = meeting->version;
    options.backend = "nccl";
    options.timeout_ms = TIMEOUT_MS;
    group = ranks_open(rank, NULL, &options);
    CHECK(fake_nccl.roots == meeting->roots);
    CHECK(fake_nccl.ids == (meeting->makers[rank] == 'x'));
    CHECK_OK(ctrun_all_reduce(group, &sum, &sum, 1, CTRUN_I32, CTRUN_SUM, NULL, &err));
    CHECK(sum == 10);
    ctrun_group_close(group);
    CHECK(fake_nccl.blocks == 0);
    return 0;
}

TEST_AROUND(many_ranks_meet_at_several_roots, begin, NULL)
{
    static const struct meeting meetings[] = {
        {0, "2", 3, "xx.x."},
        {0, "4", 2, "x.x.."},
        {0, "5", 1, "x...."},
        {22200, "2", 1, "x...."} /* an older NCCL */
    };

    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++) {
        struct meeting meeting = meetings[i];

        setenv("CTRUN_NCCL_RANKS_PER_ROOT", meeting.ranks_per_root, 1);
        assert_int_equal(ranks_run(MANY, meet_at_roots, &meeting), 0);
    }
    unsetenv("CTRUN_NCCL_RANKS_PER_ROOT");
}
