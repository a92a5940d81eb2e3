/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of gradients and parameters that only a device can read, over the fakes of tests/lib:
 * whether all are finite, their norm, and whether all ranks have the same parameters. Each story
 * also runs on the host back end. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

enum {
    HALF,
    BRAIN,
    WIDE, /* ELEMENTS_MAX in some stories */
    TWICE,
    GRADS,          /* the number of parameters with a gradient */
    FROZEN = GRADS, /* bytes */
    MEAN,           /* a buffer */
    PARAMS,
    ELEMENTS_MAX = 70001, /* more than a kernel has threads */
    BYTES_MAX = ELEMENTS_MAX * 4,
    RANKS = 2,
    TIMEOUT_MS = 150000,
};

static struct {
    const char *name;
    enum ctrun_dtype dtype;
    int64_t count;
} shapes[PARAMS] = {{"half", CTRUN_F16, 300}, {"brain", CTRUN_BF16, 5},
                    {"wide", CTRUN_F32, 300}, {"twice", CTRUN_F64, 9},
                    {"frozen", CTRUN_I8, 3},  {"mean", CTRUN_F32, 1}};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    shapes[WIDE].count = 300;
    return 0;
}

struct trainer {
    bool is_device;
    int rank;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    cudaStream_t stream;
    void *values[PARAMS];
};

static size_t bytes_of(size_t p)
{
    return (size_t)shapes[p].count * ctrun_dtype_size(shapes[p].dtype);
}

static void copy(const struct trainer *t, void *to, const void *from, size_t bytes)
{
    if (!t->is_device)
        memcpy(to, from, bytes);
    else
        CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, t->stream) ==
                  cudaSuccess &&
              cudaStreamSynchronize(t->stream) == cudaSuccess);
}

static void set(void *data, size_t p, size_t i, double value)
{
    switch (shapes[p].dtype) {
    case CTRUN_F16: ((uint16_t *)data)[i] = ct_f16_of_float((float)value); break;
    case CTRUN_BF16: ((uint16_t *)data)[i] = ct_bf16_of_float((float)value); break;
    case CTRUN_F32: ((float *)data)[i] = (float)value; break;
    case CTRUN_F64: ((double *)data)[i] = value; break;
    default: ((int8_t *)data)[i] = (int8_t)value;
    }
}

static double get(const void *data, size_t p, size_t i)
{
    switch (shapes[p].dtype) {
    case CTRUN_F16: return (double)ct_float_of_f16(((const uint16_t *)data)[i]);
    case CTRUN_BF16: return (double)ct_float_of_bf16(((const uint16_t *)data)[i]);
    case CTRUN_F32: return (double)((const float *)data)[i];
    default: return ((const double *)data)[i];
    }
}

static void *room(const struct trainer *t, size_t bytes)
{
    void *out = NULL;

    if (!t->is_device)
        out = malloc(bytes);
    else
        CHECK(cudaMalloc(&out, bytes) == cudaSuccess);
    CHECK(out);
    return out;
}

static void open_trainer(struct trainer *t, int rank, bool is_device,
                         const struct ctrun_ddp_options *options)
{
    struct ctrun_group_options group = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_param params[PARAMS];
    struct ctrun_error err;

    *t = (struct trainer){.is_device = is_device, .rank = rank};
    group.timeout_ms = TIMEOUT_MS;
    group.backend = is_device ? "nccl" : "host";
    if (is_device)
        CHECK(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) ==
              cudaSuccess);
    group.stream = t->stream;
    for (size_t p = 0; p < PARAMS; p++) {
        static char ones[BYTES_MAX];

        params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        params[p].name = shapes[p].name;
        params[p].dtype = shapes[p].dtype;
        params[p].dims = 1;
        params[p].sizes[0] = shapes[p].count;
        params[p].no_grad = p >= GRADS;
        params[p].is_buffer = p == MEAN;
        params[p].data = t->values[p] = room(t, bytes_of(p));
        memset(ones, 1, sizeof ones);
        copy(t, t->values[p], ones, bytes_of(p));
    }
    t->group = ranks_open(rank, NULL, &group);
    CHECK_OK(ctrun_ddp_create(&t->ddp, t->group, params, PARAMS, options, &err));
}

static void close_trainer(struct trainer *t)
{
    ctrun_ddp_destroy(t->ddp);
    ctrun_group_close(t->group);
    for (size_t p = 0; p < PARAMS; p++) {
        if (!t->is_device)
            free(t->values[p]);
        else
            CHECK(cudaFree(t->values[p]) == cudaSuccess);
    }
    if (!t->is_device)
        return;
    CHECK(cudaStreamDestroy(t->stream) == cudaSuccess);
    CHECK(fake_nccl.blocks == 0);
}

/* ---- A step ------------------------------------------------------------------------------ */

/* A step: all gradients are small numbers, except one. */
struct step {
    size_t bad, at; /* parameter (GRADS: none) and element, on the last rank */
    double value;
    bool forgets; /* rank 0 gives no gradient of `brain` */
};

static double number(int rank, size_t p, size_t i)
{
    return (double)((i * 7 + p * 3 + (size_t)rank) % 64) / 32 - 1;
}

static int make_step(struct trainer *t, const struct step *step,
                     struct ctrun_error *err)
{
    static char made[BYTES_MAX];
    const bool is_last = t->rank == ctrun_group_size(t->group) - 1;
    int rc = ctrun_ddp_forward_begin(t->ddp, err);

    if (rc == 0)
        rc = ctrun_ddp_backward_begin(t->ddp, NULL, err);
    for (size_t p = GRADS; rc == 0 && p-- > 0;) {
        for (size_t i = 0; i < (size_t)shapes[p].count; i++)
            set(made, p, i, number(t->rank, p, i));
        if (is_last && p == step->bad)
            set(made, p, step->at, step->value);
        if (t->rank == 0 && p == BRAIN && step->forgets)
            continue;
        copy(t, ctrun_ddp_grad(t->ddp, p), made, bytes_of(p));
        rc = ctrun_ddp_grad_ready(t->ddp, p, t->stream, err);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(t->ddp, t->stream, err);
}

static const struct step good = {.bad = GRADS};

/* ---- Finite? ----------------------------------------------------------------------------- */

/* Returns the error of a step. A device reports it in the next step. */
static int end_of(struct trainer *t, const struct step *step, bool is_late,
                  struct ctrun_error *err)
{
    int rc = make_step(t, step, err);

    if (!is_late)
        return rc;
    CHECK(rc == 0);
    return make_step(t, &good, err);
}

static int find_bad(int rank, void *context)
{
    const struct ctrun_ddp_options *options = context;
    const struct step worse = {.bad = WIDE, .at = 1, .value = NAN, .forgets = true};

    for (int is_device = 0; is_device < 2; is_device++) {
        struct ctrun_error err;
        struct trainer t;
        bool is_late;
        char want[96];

        open_trainer(&t, rank, is_device, options);
        is_late = is_device && !options->find_unused && ctrun_group_size(t.group) > 1;
        for (size_t p = 0; p < GRADS; p++) {
            const size_t last = (size_t)shapes[p].count - 1;
            struct step step = {.bad = p, .at = p % 2 ? 0 : last, .value = NAN};

            CHECK_OK(make_step(&t, &good, &err));
            CHECK(end_of(&t, &step, is_late, &err) == CTRUN_E_DIVERGED);
            snprintf(want, sizeof want,
                     "ddp: on rank %d the gradient of parameter %zu '%s' is not finite",
                     ctrun_group_size(t.group) - 1, p, shapes[p].name);
            CHECK(strcmp(err.text, want) == 0);
            step.at = last / 2;
            step.value = -INFINITY;
            CHECK(end_of(&t, &step, is_late, &err) == CTRUN_E_DIVERGED);
            CHECK(strcmp(err.text, want) == 0);
            step.value = p == HALF ? 32767 : p == TWICE ? DBL_MAX / 4 : 1e37;
            CHECK_OK(make_step(&t, &step, &err));
            CHECK_OK(make_step(&t, &good, &err));
        }
        /* The first reason of the first rank that has one. */
        CHECK(end_of(&t, &worse, is_late, &err) ==
              (ctrun_group_size(t.group) > 1 ? CTRUN_E_USAGE : CTRUN_E_DIVERGED));
        CHECK_OK(make_step(&t, &good, &err));
        close_trainer(&t);
    }
    return 0;
}

TEST_AROUND(a_gradient_that_is_not_finite_names_rank_and_parameter, begin, NULL)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;

    options.check_finite = true;
    options.first_bucket_bytes = 64;
    assert_int_equal(ranks_run(RANKS, find_bad, &options), 0);
    assert_int_equal(ranks_run(1, find_bad, &options), 0);
    options.reduce_dtype = CTRUN_BF16; /* the flag is sent in this type, too */
    assert_int_equal(ranks_run(RANKS, find_bad, &options), 0);
    options.reduce_dtype = CTRUN_F32;
    options.find_unused = true; /* backward_end() waits for the device */
    assert_int_equal(ranks_run(RANKS, find_bad, &options), 0);
}

/* ---- How long? --------------------------------------------------------------------------- */

static double averages[2][GRADS][ELEMENTS_MAX]; /* on the host and on the device */

static void fetch_grads(struct trainer *t)
{
    static char got[BYTES_MAX];

    for (size_t p = 0; p < GRADS; p++) {
        copy(t, got, ctrun_ddp_grad(t->ddp, p), bytes_of(p));
        for (size_t i = 0; i < (size_t)shapes[p].count; i++)
            averages[t->is_device][p][i] = get(got, p, i);
    }
}

/* Norms differ in their last bits, because of the order of the sums, so a gradient may be rounded
 * to the next number. */
static void compare_averages(void)
{
    static const double eps[GRADS] = {0x1p-10, 0x1p-7, 0x1p-23, 1e-12};

    for (size_t p = 0; p < GRADS; p++)
        for (size_t i = 0; i < (size_t)shapes[p].count; i++) {
            const double a = averages[0][p][i], b = averages[1][p][i];

            CHECK(fabs(a - b) <= eps[p] * fabs(a));
        }
}

/* All ranks have the same bits. */
static void check_alike(struct trainer *t, double norm)
{
    double all[RANKS];
    struct ctrun_error err;

    CHECK_OK(ctrun_all_gather(t->group, &norm, all, 1, CTRUN_F64, NULL, &err));
    CHECK(memcmp(&all[0], &all[1], sizeof norm) == 0);
}

static int clip_both(int rank, void *context)
{
    static const double limits[] = {1000, 0.125};
    const struct ctrun_ddp_options *options = context;
    double norms[2][2];
    struct ctrun_error err;
    struct trainer t[2];

    shapes[WIDE].count = ELEMENTS_MAX;
    fake_nccl.late_us = 30;
    for (int d = 0; d < 2; d++) {
        open_trainer(&t[d], rank, d, options);
        CHECK(ctrun_ddp_clip_grad_norm(t[d].ddp, 0, NULL, &err) == -EINVAL);
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        for (int d = 0; d < 2; d++) {
            CHECK_OK(make_step(&t[d], &good, &err));
            CHECK_OK(ctrun_ddp_clip_grad_norm(t[d].ddp, limits[i], &norms[d][i], &err));
            fetch_grads(&t[d]);
        }
        CHECK(fabs(norms[0][i] - norms[1][i]) <= 1e-12 * norms[0][i] &&
              norms[0][i] > 1);
        check_alike(&t[1], norms[1][i]);
        compare_averages();
        CHECK_OK(ctrun_ddp_clip_grad_norm(t[1].ddp, 1e9, &norms[1][i], &err));
        CHECK(fabs(norms[1][i] - fmin(norms[0][i], limits[i])) < 1e-2 * limits[i]);
    }
    for (int d = 0; d < 2; d++) {
        const struct step bad = {.bad = WIDE, .at = 70000, .value = NAN};

        CHECK_OK(make_step(&t[d], &bad, &err));
        CHECK(ctrun_ddp_clip_grad_norm(t[d].ddp, 1, &norms[d][0], &err) ==
              CTRUN_E_DIVERGED);
        CHECK(strcmp(err.text, "ddp: the gradient of parameter 2 'wide' is not finite, "
                               "or too large to clip") == 0);
        fetch_grads(&t[d]);
        CHECK_OK(make_step(&t[d], &good, &err)); /* reported only once */
        close_trainer(&t[d]);
    }
    averages[0][WIDE][70000] = averages[1][WIDE][70000] = 0; /* NaN */
    compare_averages();
    return 0;
}

TEST_AROUND(gradients_are_clipped_by_their_global_norm, begin, NULL)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;

    assert_int_equal(ranks_run(RANKS, clip_both, &options), 0);
    options.shard_gradients = true;
    assert_int_equal(ranks_run(RANKS, clip_both, &options), 0);
}

/* Each square is finite, their sum is not. */
RANKS_TEST_AROUND(gradients_whose_norm_overflows_are_not_scaled, RANKS, begin, NULL)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err;
    double grad, norm;
    struct trainer t;

    shapes[WIDE].dtype = CTRUN_F64;
    for (int d = 0; d < 2; d++) {
        open_trainer(&t, rank, d, &options);
        CHECK_OK(make_step(&t, &good, &err));
        for (size_t p = WIDE; p <= TWICE; p++)
            copy(&t, ctrun_ddp_grad(t.ddp, p), &(double){1.2e154}, sizeof grad);
        CHECK(ctrun_ddp_clip_grad_norm(t.ddp, 1, &norm, &err) == CTRUN_E_DIVERGED);
        CHECK(strstr(err.text,
                     "parameter 3 'twice' is not finite, or too large to clip"));
        copy(&t, &grad, ctrun_ddp_grad(t.ddp, TWICE), sizeof grad);
        CHECK(grad == 1.2e154);
        close_trainer(&t);
    }
    return 0;
}

static _Atomic bool gate;

static void run_gate(void *context)
{
    while (!gate)
        sched_yield();
}

RANKS_TEST_AROUND(a_clipping_without_a_norm_waits_for_nothing, RANKS, begin, NULL)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const struct step bad = {.bad = HALF, .at = 4, .value = INFINITY};
    struct ctrun_error err;
    struct trainer t;
    double norm;

    open_trainer(&t, rank, true, &options);
    CHECK_OK(make_step(&t, &good, &err));
    fake_launch(t.stream, run_gate, NULL);
    CHECK_OK(ctrun_ddp_clip_grad_norm(t.ddp, 0.25, NULL, &err));
    gate = true; /* a call that waited for the device would never return */
    CHECK_OK(ctrun_ddp_clip_grad_norm(t.ddp, 9, &norm, &err));
    CHECK(fabs(norm - 0.25) < 1e-3);
    CHECK_OK(make_step(&t, &bad, &err));
    CHECK_OK(ctrun_ddp_clip_grad_norm(t.ddp, 1, NULL, &err));
    CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
    CHECK(ctrun_ddp_backward_begin(t.ddp, NULL, &err) == CTRUN_E_DIVERGED);
    CHECK(strstr(err.text, "parameter 0 'half'"));
    CHECK_OK(make_step(&t, &good, &err));
    close_trainer(&t);
    return 0;
}

/* The first rank ends with this step; the others also, or they go on. */
struct ending {
    struct ctrun_ddp_options options;
    bool clips, goes_on;
};

static int end_badly(int rank, void *context)
{
    const struct step bad = {.bad = WIDE, .at = 7, .value = NAN};
    const struct ending *ending = context;
    struct ctrun_error err = {.text = ""};
    struct trainer t;

    open_trainer(&t, rank, true, &ending->options);
    CHECK_OK(make_step(&t, &good, &err));
    CHECK_OK(ctrun_ddp_join_begin(t.ddp, NULL, &err));
    CHECK_OK(make_step(&t, &good, &err));
    CHECK_OK(make_step(&t, &bad, &err));
    if (ending->clips)
        CHECK_OK(ctrun_ddp_clip_grad_norm(t.ddp, 1, NULL, &err));
    if (rank > 0 && ending->goes_on) {
        CHECK(make_step(&t, &good, &err) == CTRUN_E_DIVERGED);
        CHECK_OK(make_step(&t, &good, &err));
        CHECK_OK(ctrun_ddp_join_end(t.ddp, &err));
    } else {
        CHECK(ctrun_ddp_join_end(t.ddp, &err) == CTRUN_E_DIVERGED);
        CHECK(err.code == CTRUN_E_DIVERGED && strstr(err.text, "parameter 2 'wide'"));
    }
    CHECK_OK(ctrun_ddp_check_replicas(t.ddp, &err)); /* the join is over */
    CHECK_OK(ctrun_ddp_join_begin(t.ddp, NULL, &err));
    CHECK_OK(make_step(&t, &good, &err));
    CHECK_OK(ctrun_ddp_join_end(t.ddp, &err));
    close_trainer(&t);
    return 0;
}

TEST_AROUND(the_last_step_before_the_end_of_a_join_is_told_by_the_end, begin, NULL)
{
    struct ending ending = {.options = CTRUN_DDP_OPTIONS_INIT};

    for (int i = 0; i < 4; i++) {
        ending.clips = i % 2;
        ending.options.check_finite = !ending.clips;
        ending.goes_on = i / 2;
        assert_int_equal(ranks_run(RANKS, end_badly, &ending), 0);
    }
}

/* ---- Those of the others? ---------------------------------------------------------------- */

/* Of the last element. */
static void flip_bit(struct trainer *t, size_t p)
{
    static char value[BYTES_MAX];

    copy(t, value, t->values[p], bytes_of(p));
    value[bytes_of(p) - 1] ^= (char)(t->rank == 1 ? 0x40 : 0);
    copy(t, t->values[p], value, bytes_of(p));
}

RANKS_TEST_AROUND(the_rank_whose_parameters_differ_is_named, RANKS, begin, NULL)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    double value[9] = {0};

    shapes[WIDE].count = ELEMENTS_MAX;
    for (int is_device = 0; is_device < 2; is_device++) {
        struct ctrun_error err;
        struct trainer t;
        char want[48];

        open_trainer(&t, rank, is_device, &options);
        for (size_t p = 0; p < PARAMS; p++) {
            flip_bit(&t, p);
            if (p == MEAN) /* buffers may differ */
                continue;
            snprintf(want, sizeof want, "differs on rank 1 is params[%zu] '%s'", p,
                     shapes[p].name);
            CHECK(ctrun_ddp_check_replicas(t.ddp, &err) == CTRUN_E_MISMATCH);
            CHECK(strstr(err.text, want) && strstr(err.text, "of rank 1 differ"));
            flip_bit(&t, p);
        }
        CHECK_OK(ctrun_ddp_check_replicas(t.ddp, &err));
        set(value, TWICE, 3, rank ? 1 : 2); /* the same numbers in another order */
        set(value, TWICE, 4, rank ? 2 : 1);
        copy(&t, t.values[TWICE], value, bytes_of(TWICE));
        CHECK(ctrun_ddp_check_replicas(t.ddp, &err) == CTRUN_E_MISMATCH);
        close_trainer(&t);
    }
    return 0;
}
