/* SPDX-License-Identifier: Apache-2.0 */
/* Everything of a step that is neither a convolution nor a matrix product. The comments say which
 * grid and block a kernel needs; where none is named, one thread per value. */
#ifndef CNN_CUDA_KERNELS_CUH
#define CNN_CUDA_KERNELS_CUH

#include "worker_sdk/cnn/cuda_engine.cuh"

/* x is (B, 784); one block an image. */
__global__ void gather(const uint8_t *images, const uint8_t *all_labels,
                       const struct stage *stage, float *x, uint8_t *labels);

/* a is (B, C, area): a = max(a + bias[c], 0) */
__global__ void bias_relu(float *a, const float *bias, size_t n, size_t channels,
                          size_t area);

/* The gradient passes where a > 0. */
__global__ void relu_backward(const float *a, float *da, size_t n);

/* a2 is (B, 64, 24, 24) without bias; flat is (B, 144, 64): bias, ReLU, pool, dropout. One block
 * of 64 threads, a channel each, per window (x) and image (y). */
__global__ void pool_forward(const float *a2, const float *bias,
                             const struct stage *stage, uint64_t seed, bool train,
                             float *flat, uint8_t *from);

/* da2 (B, 64, 24, 24) from dflat (B, 144, 64); where flat is 0, ReLU or dropout stopped it. */
__global__ void pool_backward(const float *flat, const float *dflat,
                              const uint8_t *from, float *da2);

struct head {
    const float *fc1_b, *fc2_w, *fc2_b;
    float *hidden, *dhidden, *log_probs, *dlogits;
    const uint8_t *labels;
    const struct stage *stage;
    uint64_t seed;
    bool train;
    struct device_sums *sums;
};

/* What head.c does, one block of 128 threads per sample: bias, ReLU, dropout 2, fc2,
 * log-softmax, loss; in training also the gradients at the logits and at fc1's output. */
__global__ void head_step(struct head head);

/* dw (128, 10) = hidden^T dlogits; one block a unit, one thread a class. */
__global__ void fc2_backward(const float *hidden, const float *dlogits, size_t n,
                             float *dw);

/* out[c] = sum over rows of x (n, columns); one thread a column. */
__global__ void column_sums(const float *x, size_t n, float *out);

/* optimizer.c, rounding for rounding: no operation may be fused. */
__global__ void adadelta(float *value, const float *grad, float *square_avg,
                         float *acc_delta, size_t n, const struct stage *stage);

#endif
