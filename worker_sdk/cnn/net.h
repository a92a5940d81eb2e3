/* SPDX-License-Identifier: Apache-2.0 */
/* The network of PyTorch's MNIST example: its parameters, their first values, their layouts.
 *
 *     conv1 1->32 3x3, ReLU, conv2 32->64 3x3, ReLU, max pool 2, dropout 0.25,
 *     fc1 9216->128, ReLU, dropout 0.5, fc2 128->10, log-softmax
 *
 * Names, order and shapes are those of PyTorch's state_dict. In memory the linear layers are
 * input-major, so that the weights of one input are one contiguous row: fc1.weight is (pooling
 * window, channel, unit) = (144, 64, 128), fc2.weight (unit, class) = (128, 10). cnn_to_torch()
 * and cnn_from_torch() translate; every back end uses the same layout, so ranks with different
 * processors train together. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CNN_SIDE = 28,
    CNN_PIXELS = CNN_SIDE * CNN_SIDE,
    CNN_C1 = 32,    /* channels after conv1 */
    CNN_SIDE1 = 26, /* its rows and columns */
    CNN_AREA1 = CNN_SIDE1 * CNN_SIDE1,
    CNN_C2 = 64, /* channels after conv2 */
    CNN_SIDE2 = 24,
    CNN_AREA2 = CNN_SIDE2 * CNN_SIDE2,
    CNN_POOLED = 12, /* rows and columns after pooling */
    CNN_WINDOWS = CNN_POOLED * CNN_POOLED,
    CNN_FLAT = CNN_WINDOWS * CNN_C2,
    CNN_HIDDEN = 128,
    CNN_CLASSES = 10,
};

enum cnn_param {
    CNN_CONV1_W,
    CNN_CONV1_B,
    CNN_CONV2_W,
    CNN_CONV2_B,
    CNN_FC1_W,
    CNN_FC1_B,
    CNN_FC2_W,
    CNN_FC2_B,
    CNN_PARAMS
};

struct cnn_param_info {
    const char *name; /* as in PyTorch's state_dict */
    int dims;
    int64_t sizes[4]; /* PyTorch's */
    uint32_t count;   /* elements */
    uint32_t fan_in;  /* bounds of the first values: 1 / sqrt(fan_in) */
};
extern const struct cnn_param_info cnn_params[CNN_PARAMS];

/* One float array per parameter: values, gradients, or an optimizer's state. */
struct cnn_tensors {
    float *of[CNN_PARAMS]; /* 64-byte aligned, all in `block` */
    float *block;
};
/* Elements of `block`: of all arrays, and of the padding between them, which stays 0. */
size_t cnn_tensors_length(void);
/* Zeroed. 0 or -ENOMEM. deinit accepts a zeroed one. */
int cnn_tensors_init(struct cnn_tensors *tensors);
void cnn_tensors_deinit(struct cnn_tensors *tensors);

/* The trained state; saved and restored as a whole. */
struct cnn_model {
    struct cnn_tensors values;
    struct cnn_tensors square_avg; /* Adadelta */
    struct cnn_tensors acc_delta;
};
int cnn_model_init(struct cnn_model *model);
void cnn_model_deinit(struct cnn_model *model);

/* PyTorch's default initialisation: uniform in +-1/sqrt(fan_in), weights and biases, from our
 * own generator; clears the optimizer's state. */
void cnn_model_reset(struct cnn_model *model, uint64_t seed);

/* One parameter between our layout and PyTorch's; in and out do not overlap. */
void cnn_to_torch(enum cnn_param p, const float *in, float *out);
void cnn_from_torch(enum cnn_param p, const float *in, float *out);

/* A 64-bit digest of all bits of the values; equal tensors have equal digests. */
uint64_t cnn_digest(const struct cnn_tensors *tensors);
