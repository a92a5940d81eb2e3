/* SPDX-License-Identifier: Apache-2.0 */
/* The plain back end: layers.c over the whole batch, one thread, PyTorch's memory order. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/backends.h"
#include "worker_sdk/cnn/head.h"
#include "worker_sdk/cnn/layers.h"

struct plain {
    struct cnn_engine engine; /* first: the table casts */
    struct cnn_head head;
    struct cnn_batch batch; /* of the last forward */
    size_t capacity;
    float *x;      /* (B, 1, 28, 28) */
    float *a1;     /* (B, 32, 26, 26), after ReLU */
    float *a2;     /* (B, 64, 24, 24), after ReLU */
    float *pooled; /* (B, 64, 12, 12) */
    float *flat;   /* (B, 144, 64), after dropout */
    float *dflat;  /* gradients of the same shapes */
    float *dpooled;
    float *da2;
    float *da1;
    uint8_t *from;  /* (B, 64, 12, 12) */
    uint64_t *keep; /* (B, 144) */
};

static const struct cnn_conv CONV1 = {
    .in = 1, .out = CNN_C1, .height = CNN_SIDE, .width = CNN_SIDE};
static const struct cnn_conv CONV2 = {
    .in = CNN_C1, .out = CNN_C2, .height = CNN_SIDE1, .width = CNN_SIDE1};
static const struct cnn_linear FC1 = {.in = CNN_FLAT, .out = CNN_HIDDEN};

static void plain_free(struct plain *self)
{
    float **const arrays[] = {&self->x,       &self->a1,   &self->a2,
                              &self->pooled,  &self->flat, &self->dflat,
                              &self->dpooled, &self->da2,  &self->da1};

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        free(*arrays[i]);
        *arrays[i] = NULL;
    }
    free(self->from);
    free(self->keep);
    self->from = NULL;
    self->keep = NULL;
    self->capacity = 0;
}

/* Arrays only grow: batches of training and of testing take turns. After -ENOMEM capacity is 0,
 * and the next call or close frees the arrays that exist. */
static int plain_reserve(struct plain *self, size_t n)
{
    n = n ? n : 1; /* an empty batch has arrays too */
    if (n <= self->capacity)
        return 0;
    plain_free(self);
    self->x = ct_zalloc_array(n, CNN_PIXELS * sizeof(float));
    self->a1 = ct_zalloc_array(n, CNN_C1 * CNN_AREA1 * sizeof(float));
    self->da1 = ct_zalloc_array(n, CNN_C1 * CNN_AREA1 * sizeof(float));
    self->a2 = ct_zalloc_array(n, CNN_C2 * CNN_AREA2 * sizeof(float));
    self->da2 = ct_zalloc_array(n, CNN_C2 * CNN_AREA2 * sizeof(float));
    self->pooled = ct_zalloc_array(n, CNN_FLAT * sizeof(float));
    self->dpooled = ct_zalloc_array(n, CNN_FLAT * sizeof(float));
    self->flat = ct_zalloc_array(n, CNN_FLAT * sizeof(float));
    self->dflat = ct_zalloc_array(n, CNN_FLAT * sizeof(float));
    self->from = ct_zalloc_array(n, CNN_FLAT);
    self->keep = ct_zalloc_array(n, CNN_WINDOWS * sizeof(uint64_t));
    if (!self->x || !self->a1 || !self->da1 || !self->a2 || !self->da2 ||
        !self->pooled || !self->dpooled || !self->flat || !self->dflat || !self->from ||
        !self->keep)
        return -ENOMEM;
    self->capacity = n;
    return 0;
}

static void plain_close(struct cnn_engine *engine)
{
    struct plain *self = (struct plain *)engine;

    plain_free(self);
    cnn_head_deinit(&self->head);
    cnn_engine_deinit(engine);
    free(self);
}

static int plain_open(struct cnn_engine **out, const struct cnn_engine_options *options,
                      struct ctrun_error *err)
{
    struct plain *self = ct_zalloc(sizeof *self);
    int rc;

    if (!self)
        return ct_fail(err, -ENOMEM, "open the plain back end: out of memory");
    if ((rc = cnn_engine_init(&self->engine, &cnn_backend_plain, options, err)) < 0) {
        plain_close(&self->engine);
        return rc;
    }
    *out = &self->engine;
    return 0;
}

static int plain_forward(struct cnn_engine *engine, const struct cnn_batch *batch,
                         struct ctrun_error *err)
{
    struct plain *self = (struct plain *)engine;
    float *const *value = engine->model->values.of;
    const size_t n = batch->count;
    struct cnn_conv conv1 = CONV1, conv2 = CONV2;
    struct cnn_linear fc1 = FC1;

    if (cnn_head_reserve(&self->head, n) < 0 || plain_reserve(self, n) < 0)
        return ct_fail(err, -ENOMEM, "a batch of %zu: out of memory", n);
    /* kept for backward; the caller owns what it points to, and does not change it until then */
    self->batch = *batch;
    conv1.batch = conv2.batch = fc1.batch = n;
    ctrun_dataset_gather(batch->data, batch->indices, n, CNN_MEAN, CNN_STD, self->x,
                         self->head.labels);
    cnn_conv_forward(&conv1, self->x, value[CNN_CONV1_W], value[CNN_CONV1_B], self->a1);
    cnn_relu_forward(self->a1, n * CNN_C1 * CNN_AREA1);
    cnn_conv_forward(&conv2, self->a1, value[CNN_CONV2_W], value[CNN_CONV2_B],
                     self->a2);
    cnn_relu_forward(self->a2, n * CNN_C2 * CNN_AREA2);
    cnn_maxpool_forward(n * CNN_C2, CNN_SIDE2, CNN_SIDE2, self->a2, self->pooled,
                        self->from);
    cnn_channels_last(n, CNN_C2, CNN_WINDOWS, self->pooled, self->flat);
    for (size_t i = 0; i < n && batch->train; i++) {
        uint64_t *keep = self->keep + i * CNN_WINDOWS;

        cnn_engine_keep1(engine, batch, i, keep);
        cnn_dropout_apply(self->flat + i * CNN_FLAT, CNN_FLAT, keep, engine->scale1);
    }
    cnn_linear_forward(&fc1, self->flat, value[CNN_FC1_W], value[CNN_FC1_B],
                       self->head.hidden);
    cnn_head_forward(&self->head, engine, batch);
    return 0;
}

/* fc1's input gradient back through dropout, pooling and ReLU to conv2's output. */
static void plain_backward_pool(struct plain *self, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cnn_dropout_apply(self->dflat + i * CNN_FLAT, CNN_FLAT,
                          self->keep + i * CNN_WINDOWS, self->engine.scale1);
    cnn_channels_first(n, CNN_C2, CNN_WINDOWS, self->dflat, self->dpooled);
    cnn_maxpool_backward(n * CNN_C2, CNN_SIDE2, CNN_SIDE2, self->dpooled, self->from,
                         self->da2);
    cnn_relu_backward(self->a2, self->da2, n * CNN_C2 * CNN_AREA2);
}

static int plain_backward(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                          cnn_ready_fn *on_ready, void *context,
                          struct ctrun_error *err)
{
    struct plain *self = (struct plain *)engine;
    float *const *value = engine->model->values.of;
    const size_t n = self->batch.count;
    struct cnn_conv conv1 = CONV1, conv2 = CONV2;
    struct cnn_linear fc1 = FC1;
    int rc;

    conv1.batch = conv2.batch = fc1.batch = n;
    cnn_head_backward(&self->head, engine, &self->batch, grads);
    cnn_linear_backward_w(&fc1, self->flat, self->head.dhidden, grads[CNN_FC1_W],
                          grads[CNN_FC1_B]);
    /* As soon as a gradient is final, the last layers first, so that DDP sums it while the rest
     * is computed. From then on it is not written to. */
    if ((rc = on_ready(context, CNN_FC2_B, err)) < 0 ||
        (rc = on_ready(context, CNN_FC2_W, err)) < 0 ||
        (rc = on_ready(context, CNN_FC1_B, err)) < 0 ||
        (rc = on_ready(context, CNN_FC1_W, err)) < 0)
        return rc;
    cnn_linear_backward_x(&fc1, value[CNN_FC1_W], self->head.dhidden, self->dflat);
    plain_backward_pool(self, n);
    cnn_conv_backward_w(&conv2, self->a1, self->da2, grads[CNN_CONV2_W],
                        grads[CNN_CONV2_B]);
    if ((rc = on_ready(context, CNN_CONV2_W, err)) < 0 ||
        (rc = on_ready(context, CNN_CONV2_B, err)) < 0)
        return rc;
    cnn_conv_backward_x(&conv2, value[CNN_CONV2_W], self->da2, self->da1);
    cnn_relu_backward(self->a1, self->da1, n * CNN_C1 * CNN_AREA1);
    cnn_conv_backward_w(&conv1, self->x, self->da1, grads[CNN_CONV1_W],
                        grads[CNN_CONV1_B]);
    if ((rc = on_ready(context, CNN_CONV1_W, err)) < 0)
        return rc;
    return on_ready(context, CNN_CONV1_B, err);
}

static bool is_finite(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

const char *cnn_plain_broken_layer(const struct cnn_engine *engine)
{
    const struct plain *self = (const struct plain *)engine;
    const size_t n = self->batch.count;

    return !is_finite(self->a1, n * CNN_C1 * CNN_AREA1)        ? "conv1"
           : !is_finite(self->a2, n * CNN_C2 * CNN_AREA2)      ? "conv2"
           : !is_finite(self->head.hidden, n * CNN_HIDDEN)     ? "fc1"
           : !is_finite(self->head.log_probs, n * CNN_CLASSES) ? "fc2"
                                                               : NULL;
}

const struct cnn_backend cnn_backend_plain = {
    .name = "plain",
    .is_usable = cnn_always_usable,
    .open = plain_open,
    .close = plain_close,
    .forward = plain_forward,
    .backward = plain_backward,
    .update = cnn_engine_update,
};
