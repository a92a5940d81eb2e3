/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/cnn/layers.h"
#include "worker_sdk/cnn/random.h"

static const struct cnn_linear FC2 = {.in = CNN_HIDDEN, .out = CNN_CLASSES};

int cnn_head_reserve(struct cnn_head *head, size_t n)
{
    n = n ? n : 1; /* an empty batch has arrays too */
    if (n <= head->capacity)
        return 0;
    cnn_head_deinit(head);
    head->hidden = ct_zalloc_array(n, CNN_HIDDEN * sizeof(float));
    head->dhidden = ct_zalloc_array(n, CNN_HIDDEN * sizeof(float));
    head->log_probs = ct_zalloc_array(n, CNN_CLASSES * sizeof(float));
    head->dlogits = ct_zalloc_array(n, CNN_CLASSES * sizeof(float));
    head->keep = ct_zalloc_array(n, CNN_KEEP2_WORDS * sizeof(uint64_t));
    head->labels = ct_zalloc(n);
    if (!head->hidden || !head->dhidden || !head->log_probs || !head->dlogits ||
        !head->keep || !head->labels) {
        cnn_head_deinit(head);
        return -ENOMEM;
    }
    head->capacity = n;
    return 0;
}

void cnn_head_deinit(struct cnn_head *head)
{
    free(head->hidden);
    free(head->dhidden);
    free(head->log_probs);
    free(head->dlogits);
    free(head->keep);
    free(head->labels);
    memset(head, 0, sizeof *head);
}

static void add_sums(const struct cnn_head *head, size_t n, struct cnn_sums *sums)
{
    for (size_t i = 0; i < n; i++) {
        const float *row = head->log_probs + i * CNN_CLASSES;
        size_t best = 0;

        for (size_t c = 1; c < CNN_CLASSES; c++)
            best = row[c] > row[best] ? c : best;
        sums->loss -= (double)row[head->labels[i]];
        sums->correct += best == head->labels[i];
    }
    sums->count += n;
}

void cnn_head_forward(struct cnn_head *head, struct cnn_engine *engine,
                      const struct cnn_batch *batch)
{
    float *const *value = engine->model->values.of;
    const size_t n = batch->count;
    struct cnn_linear fc2 = FC2;

    fc2.batch = n;
    for (size_t i = 0; i < n; i++)
        head->labels[i] = batch->data->labels[batch->indices[i]];
    cnn_relu_forward(head->hidden, n * CNN_HIDDEN);
    for (size_t i = 0; i < n && batch->train; i++) {
        uint64_t *keep = head->keep + i * CNN_KEEP2_WORDS;

        cnn_engine_keep2(engine, batch, i, keep);
        cnn_dropout_apply(head->hidden + i * CNN_HIDDEN, CNN_HIDDEN, keep,
                          engine->scale2);
    }
    cnn_linear_forward(&fc2, head->hidden, value[CNN_FC2_W], value[CNN_FC2_B],
                       head->log_probs);
    cnn_log_softmax(n, CNN_CLASSES, head->log_probs);
    add_sums(head, n, &engine->sums);
    if (batch->log_probs)
        memcpy(batch->log_probs, head->log_probs, n * CNN_CLASSES * sizeof(float));
}

void cnn_head_backward(struct cnn_head *head, const struct cnn_engine *engine,
                       const struct cnn_batch *batch, float *const grads[CNN_PARAMS])
{
    const size_t n = batch->count;
    struct cnn_linear fc2 = FC2;

    fc2.batch = n;
    cnn_nll_backward(n, CNN_CLASSES, head->log_probs, head->labels, batch->scale,
                     head->dlogits);
    cnn_linear_backward_w(&fc2, head->hidden, head->dlogits, grads[CNN_FC2_W],
                          grads[CNN_FC2_B]);
    cnn_linear_backward_x(&fc2, engine->model->values.of[CNN_FC2_W], head->dlogits,
                          head->dhidden);
    /* What dropout zeroed is zero in `hidden` too, so one mask serves ReLU and dropout. */
    cnn_relu_backward(head->hidden, head->dhidden, n * CNN_HIDDEN);
    memset(grads[CNN_FC1_B], 0, CNN_HIDDEN * sizeof(float));
    for (size_t i = 0; i < n * CNN_HIDDEN; i++) {
        head->dhidden[i] *= engine->scale2;
        grads[CNN_FC1_B][i % CNN_HIDDEN] += head->dhidden[i];
    }
}
