/* SPDX-License-Identifier: Apache-2.0 */
/* The layers in plain C: short, slow, and what every fast back end is compared with.
 *
 * Each forward has its backward beside it. Arrays are contiguous, the last index runs fastest.
 * Gradients with respect to weights are overwritten, not added to. Nothing here allocates,
 * fails or keeps a pointer. Tests build this file with CNN_REAL=double to check it against
 * finite differences. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef CNN_REAL
#define CNN_REAL float
#endif
typedef CNN_REAL cnn_real;

/* 3x3 convolution, stride 1, no padding.
 * x is (B, I, H, W), w is (O, I, 3, 3), b is (O), y is (B, O, H - 2, W - 2). */
struct cnn_conv {
    size_t batch, in, out, height, width; /* B, I, O, H, W */
};
void cnn_conv_forward(const struct cnn_conv *shape, const cnn_real *x,
                      const cnn_real *w, const cnn_real *b, cnn_real *y);
void cnn_conv_backward_x(const struct cnn_conv *shape, const cnn_real *w,
                         const cnn_real *dy, cnn_real *dx);
void cnn_conv_backward_w(const struct cnn_conv *shape, const cnn_real *x,
                         const cnn_real *dy, cnn_real *dw, cnn_real *db);

/* y = max(x, 0), in place; the gradient passes where y > 0. NaN stays NaN, here and below: a
 * model that is broken must show it in its loss. */
void cnn_relu_forward(cnn_real *x, size_t n);
void cnn_relu_backward(const cnn_real *y, cnn_real *dy, size_t n);

/* 2x2 windows; x is (planes, H, W), y is (planes, H / 2, W / 2); H and W are even. `from` has
 * an entry per y: which of the four, row-major, was the largest (the first of equals). */
void cnn_maxpool_forward(size_t planes, size_t height, size_t width, const cnn_real *x,
                         cnn_real *y, uint8_t *from);
void cnn_maxpool_backward(size_t planes, size_t height, size_t width,
                          const cnn_real *dy, const uint8_t *from, cnn_real *dx);

/* (B, C, P) to (B, P, C) and back: the order in which fc1 reads the pooled image. */
void cnn_channels_last(size_t batch, size_t channels, size_t pixels, const cnn_real *x,
                       cnn_real *y);
void cnn_channels_first(size_t batch, size_t channels, size_t pixels, const cnn_real *x,
                        cnn_real *y);

/* x[i] = scale * x[i] where bit i of keep is 1, else 0. Its own backward. */
void cnn_dropout_apply(cnn_real *x, size_t n, const uint64_t *keep, cnn_real scale);

/* y = x w + b; x is (B, I), w is (I, O): input-major, unlike PyTorch; y is (B, O). */
struct cnn_linear {
    size_t batch, in, out; /* B, I, O */
};
void cnn_linear_forward(const struct cnn_linear *shape, const cnn_real *x,
                        const cnn_real *w, const cnn_real *b, cnn_real *y);
void cnn_linear_backward_x(const struct cnn_linear *shape, const cnn_real *w,
                           const cnn_real *dy, cnn_real *dx);
void cnn_linear_backward_w(const struct cnn_linear *shape, const cnn_real *x,
                           const cnn_real *dy, cnn_real *dw, cnn_real *db);

/* y = x - log(sum(exp(x))) over each row, in place; x is (B, C). */
void cnn_log_softmax(size_t batch, size_t classes, cnn_real *x);
/* Negative log likelihood of log_softmax's result, both backward steps in one:
 * dx = scale * (exp(y) - onehot(label)). */
void cnn_nll_backward(size_t batch, size_t classes, const cnn_real *y,
                      const uint8_t *labels, cnn_real scale, cnn_real *dx);
