/* SPDX-License-Identifier: Apache-2.0 */
/* The last layers, the same for every CPU back end: everything after fc1's sum.
 *
 *     hidden -> ReLU -> dropout 0.5 -> fc2 -> log-softmax -> negative log likelihood
 *
 * They are 0.01 % of the work: plain C is fast enough. */
#pragma once

#include "worker_sdk/cnn/backend.h"

struct cnn_head {
    size_t capacity;  /* samples that the arrays can hold */
    float *hidden;    /* (B, 128): fc1's output with bias; after forward what fc2 saw */
    float *dhidden;   /* (B, 128): gradient at fc1's output, after backward */
    float *log_probs; /* (B, 10) */
    float *dlogits;   /* (B, 10) */
    uint64_t *keep;   /* (B, 2): dropout 2 */
    uint8_t *labels;  /* (B) */
};

/* Makes room for n samples; 0 or -ENOMEM. deinit accepts a zeroed one. */
int cnn_head_reserve(struct cnn_head *head, size_t n);
void cnn_head_deinit(struct cnn_head *head);

/* From head->hidden; fills the labels, adds to engine->sums. */
void cnn_head_forward(struct cnn_head *head, struct cnn_engine *engine,
                      const struct cnn_batch *batch);
/* Writes the gradients of fc2 and of fc1's bias, and head->dhidden. */
void cnn_head_backward(struct cnn_head *head, const struct cnn_engine *engine,
                       const struct cnn_batch *batch, float *const grads[CNN_PARAMS]);
