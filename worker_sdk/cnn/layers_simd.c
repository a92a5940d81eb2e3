/* SPDX-License-Identifier: Apache-2.0 */
/* The simd back end: our own kernels (simd.h) over a batch, with a team of threads.
 *
 *     forward    transform weights | images: conv1, conv2, lists; fc1 | head
 *     backward   head | fc1 by windows: no two threads meet | images: convolutions | sum
 *
 * At each | all threads of the team wait for each other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/cnn/backends.h"
#include "worker_sdk/cnn/head.h"
#include "worker_sdk/cnn/random.h"
#include "worker_sdk/cnn/simd.h"

struct simd {
    struct cnn_engine engine; /* first: the table casts */
    const struct cnn_simd_kernels *kernels;
    struct cnn_simd_weights *weights;
    struct cnn_simd_scratch *scratch; /* one per thread */
    struct cnn_head head;
    struct cnn_batch batch;
    size_t capacity;
    float *x;                    /* (B, 28, 28) */
    float *a1;                   /* (B, 26, 26, 32), after ReLU */
    struct cnn_simd_list *lists; /* (B) */
    float *const *grads;         /* of the backward that runs */
};

static const struct cnn_simd_kernels *const all_kernels[] = {
#ifdef CNN_SIMD_X86
    &cnn_simd_avx512,
    &cnn_simd_avx2,
#endif
    &cnn_simd_base,
};

/* CTRUN_MNIST_ISA=base|avx2|avx512 limits the instruction set: for tests and benchmarks. */
static const struct cnn_simd_kernels *choose_kernels(void)
{
    const char *wanted = getenv("CTRUN_MNIST_ISA");
    const size_t n = sizeof all_kernels / sizeof *all_kernels;

    for (size_t i = 0; i < n; i++)
        if (all_kernels[i]->is_usable() &&
            (!wanted || strcmp(wanted, all_kernels[i]->isa) == 0))
            return all_kernels[i];
    return all_kernels[n - 1];
}

static void simd_release(struct simd *self)
{
    free(self->x);
    free(self->a1);
    free(self->lists);
    self->x = self->a1 = NULL;
    self->lists = NULL;
    self->capacity = 0;
}

static int simd_reserve(struct simd *self, size_t n)
{
    n = n ? n : 1; /* an empty batch has arrays too */
    if (n <= self->capacity)
        return 0;
    simd_release(self);
    self->x = ct_zalloc_array(n, CNN_PIXELS * sizeof(float));
    self->a1 = ct_zalloc_array(n, CNN_AREA1 * CNN_C1 * sizeof(float));
    self->lists = ct_zalloc_array(n, sizeof *self->lists);
    if (!self->x || !self->a1 || !self->lists)
        return -ENOMEM;
    self->capacity = n;
    return 0;
}

static void simd_close(struct cnn_engine *engine)
{
    struct simd *self = (struct simd *)engine;

    simd_release(self);
    cnn_head_deinit(&self->head);
    cnn_engine_deinit(engine);
    free(self->weights);
    free(self->scratch);
    free(self);
}

static int simd_open(struct cnn_engine **out, const struct cnn_engine_options *options,
                     struct ctrun_error *err)
{
    struct simd *self = ct_zalloc(sizeof *self);
    int rc = -ENOMEM;

    if (!self)
        return ct_fail(err, -ENOMEM, "open the simd back end: out of memory");
    self->kernels = choose_kernels();
    self->weights = aligned_alloc(64, sizeof *self->weights);
    self->scratch = aligned_alloc(64, (size_t)options->threads * sizeof *self->scratch);
    if (!self->weights || !self->scratch)
        (void)ct_fail(err, rc, "open the simd back end: out of memory");
    else
        rc = cnn_engine_init(&self->engine, &cnn_backend_simd, options, err);
    if (rc < 0) {
        simd_close(&self->engine);
        return rc;
    }
    *out = &self->engine;
    return 0;
}

/* ---- Forward ----------------------------------------------------------------------------- */

static void transform_part(void *context, int index, int count)
{
    struct simd *self = context;
    float *const *value = self->engine.model->values.of;
    size_t first, end;

    cnn_team_split(CNN_C1, index, count, &first, &end);
    self->kernels->transform(value[CNN_CONV2_W], first, end, self->weights);
    if (index > 0)
        return;
    for (size_t c = 0; c < CNN_C1; c++)
        for (size_t tap = 0; tap < 9; tap++)
            self->weights->w1[tap][c] = value[CNN_CONV1_W][c * 9 + tap];
    memcpy(self->weights->b1, value[CNN_CONV1_B], sizeof self->weights->b1);
    memcpy(self->weights->b2, value[CNN_CONV2_B], sizeof self->weights->b2);
}

static void forward_image(struct simd *self, size_t i, struct cnn_simd_scratch *scratch)
{
    const struct cnn_batch *batch = &self->batch;
    float *x = self->x + i * CNN_PIXELS, *a1 = self->a1 + i * CNN_AREA1 * CNN_C1;
    const bool drops = batch->train && !self->engine.no_dropout;
    uint64_t keep[CNN_KEEP1_WORDS];

    ctrun_dataset_gather(batch->data, &batch->indices[i], 1, CNN_MEAN, CNN_STD, x,
                         &self->head.labels[i]);
    if (drops)
        cnn_engine_keep1(&self->engine, batch, i, keep);
    self->kernels->conv1(self->weights, x, a1);
    self->kernels->conv2(self->weights, a1, drops ? keep : NULL, scratch,
                         &self->lists[i]);
    memcpy(self->head.hidden + i * CNN_HIDDEN, self->engine.model->values.of[CNN_FC1_B],
           CNN_HIDDEN * sizeof(float));
}

static void forward_part(void *context, int index, int count)
{
    struct simd *self = context;
    size_t first, end;

    cnn_team_split(self->batch.count, index, count, &first, &end);
    for (size_t i = first; i < end; i++)
        forward_image(self, i, &self->scratch[index]);
    self->kernels->fc1(self->engine.model->values.of[CNN_FC1_W], self->lists + first,
                       end - first, self->head.hidden + first * CNN_HIDDEN);
}

static int simd_forward(struct cnn_engine *engine, const struct cnn_batch *batch,
                        struct ctrun_error *err)
{
    struct simd *self = (struct simd *)engine;

    self->batch = *batch;
    if (cnn_head_reserve(&self->head, batch->count) < 0 ||
        simd_reserve(self, batch->count) < 0)
        return ct_fail(err, -ENOMEM, "a batch of %zu: out of memory", batch->count);
    cnn_team_run(engine->team, transform_part, self);
    cnn_team_run(engine->team, forward_part, self);
    cnn_head_forward(&self->head, engine, batch);
    return 0;
}

/* ---- Backward ---------------------------------------------------------------------------- */

static void fc1_part(void *context, int index, int count)
{
    struct simd *self = context;
    size_t first, end;

    cnn_team_split(CNN_WINDOWS, index, count, &first, &end);
    self->kernels->fc1_backward(self->engine.model->values.of[CNN_FC1_W],
                                self->head.dhidden, self->engine.scale1, self->lists,
                                self->batch.count, first, end, self->grads[CNN_FC1_W]);
}

static void conv_part(void *context, int index, int count)
{
    struct simd *self = context;
    struct cnn_simd_scratch *scratch = &self->scratch[index];
    size_t first, end;

    cnn_team_split(self->batch.count, index, count, &first, &end);
    memset(scratch->dw1, 0, sizeof scratch->dw1);
    memset(scratch->db1, 0, sizeof scratch->db1);
    memset(scratch->dw2, 0, sizeof scratch->dw2);
    memset(scratch->db2, 0, sizeof scratch->db2);
    for (size_t i = first; i < end; i++)
        self->kernels->conv_backward(self->weights, self->x + i * CNN_PIXELS,
                                     self->a1 + i * CNN_AREA1 * CNN_C1, &self->lists[i],
                                     scratch);
}

/* Adds up the gradients of all threads, in PyTorch's order. Each member takes some of conv2's
 * output channels; the first member also conv1. */
static void sum_part(void *context, int index, int count)
{
    struct simd *self = context;
    float *const *grads = self->grads;
    size_t first, end;

    cnn_team_split(CNN_C2, index, count, &first, &end);
    for (size_t o = first; o < end; o++) {
        grads[CNN_CONV2_B][o] = 0;
        for (int t = 0; t < count; t++)
            grads[CNN_CONV2_B][o] += self->scratch[t].db2[o];
        for (size_t k = 0; k < CNN_C1 * 9; k++) {
            float sum = 0;

            for (int t = 0; t < count; t++)
                sum += self->scratch[t].dw2[o][k % 9][k / 9];
            grads[CNN_CONV2_W][o * CNN_C1 * 9 + k] = sum;
        }
    }
    for (size_t c = 0; c < CNN_C1 && index == 0; c++) {
        for (size_t k = 0; k < 10; k++) {
            float *to = k < 9 ? &grads[CNN_CONV1_W][c * 9 + k] : &grads[CNN_CONV1_B][c];

            *to = 0;
            for (int t = 0; t < count; t++)
                *to += k < 9 ? self->scratch[t].dw1[k][c] : self->scratch[t].db1[c];
        }
    }
}

static int simd_backward(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                         cnn_ready_fn *on_ready, void *context, struct ctrun_error *err)
{
    static const enum cnn_param linear[] = {CNN_FC2_B, CNN_FC2_W, CNN_FC1_B, CNN_FC1_W};
    static const enum cnn_param conv[] = {CNN_CONV2_W, CNN_CONV2_B, CNN_CONV1_W,
                                          CNN_CONV1_B};
    struct simd *self = (struct simd *)engine;
    int rc = 0;

    self->grads = grads;
    cnn_head_backward(&self->head, engine, &self->batch, grads);
    cnn_team_run(engine->team, fc1_part, self);
    for (int i = 0; i < 4 && rc >= 0; i++)
        rc = on_ready(context, linear[i], err);
    if (rc < 0)
        return rc;
    cnn_team_run(engine->team, conv_part, self);
    cnn_team_run(engine->team, sum_part, self);
    for (int i = 0; i < 4 && rc >= 0; i++)
        rc = on_ready(context, conv[i], err);
    return rc < 0 ? rc : 0;
}

const struct cnn_backend cnn_backend_simd = {
    .name = "simd",
    .is_usable = cnn_always_usable,
    .open = simd_open,
    .close = simd_close,
    .forward = simd_forward,
    .backward = simd_backward,
    .update = cnn_engine_update,
};
