/* SPDX-License-Identifier: Apache-2.0 */
/* Own kernels of the network, one source compiled for each instruction set.
 *
 * Forward, one image at a time: conv1, conv2 by Winograd's F(2x2, 3x3), whose output tiles are
 * exactly the pooling windows, so that pooling, bias, ReLU and dropout happen in registers and
 * conv2's output is never stored. The remaining values (in training some 10 % of fc1's inputs)
 * become a list of (window, channel, which of the four, value). All later steps work on these
 * lists: fc1's sum and gradients, conv2's gradients. This is exact: only zeros are left out. */
#pragma once

#include "worker_sdk/cnn/net.h"

/* The weights of the convolutions as the kernels want them. */
struct cnn_simd_weights {
    float w1[9][CNN_C1]; /* conv1 by tap */
    float b1[CNN_C1];
    float u[16][CNN_C1][CNN_C2]; /* conv2 in Winograd's domain */
    float w2[CNN_C2][9][CNN_C1]; /* conv2 by output channel and tap */
    float b2[CNN_C2];
};

/* The non-zero inputs of fc1 of one image, window by window. */
struct cnn_simd_list {
    uint16_t
        start[CNN_WINDOWS + 1]; /* first entry of each window; the last is the count */
    uint8_t channel[CNN_FLAT];
    uint8_t from[CNN_FLAT]; /* 0 to 3: place in the pooling window, row-major */
    float value[CNN_FLAT];  /* after dropout's scale */
    float grad[CNN_FLAT];   /* at conv2's output, after backward through fc1 */
};

/* The memory of one thread. */
struct cnn_simd_scratch {
    float v[16][CNN_POOLED][CNN_C1]; /* a row of tiles, input transformed */
    float m[16][CNN_POOLED][CNN_C2]; /* and multiplied */
    float da1[CNN_AREA1][CNN_C1];
    float dw1[9][CNN_C1]; /* sums over this thread's images: */
    float db1[CNN_C1];
    float dw2[CNN_C2][9][CNN_C1];
    float db2[CNN_C2];
};

struct cnn_simd_kernels {
    const char *isa;
    bool (*is_usable)(void);
    /* The part of U for input channels [first, end). */
    void (*transform)(const float *w2, size_t first, size_t end,
                      struct cnn_simd_weights *out);
    /* x (28, 28) to a1 (26, 26, 32), after ReLU. */
    void (*conv1)(const struct cnn_simd_weights *w, const float *x, float *a1);
    /* a1 to the list. keep: dropout 1, or NULL: none, scale 1. */
    void (*conv2)(const struct cnn_simd_weights *w, const float *a1,
                  const uint64_t *keep, struct cnn_simd_scratch *scratch,
                  struct cnn_simd_list *out);
    /* hidden (n, 128) += the lists' values times fc1.weight. */
    void (*fc1)(const float *weight, const struct cnn_simd_list *lists, size_t n,
                float *hidden);
    /* Windows [first, end): dweight, overwritten, and the lists' grad. scale: dropout 1's. */
    void (*fc1_backward)(const float *weight, const float *dhidden, float scale,
                         struct cnn_simd_list *lists, size_t n, size_t first,
                         size_t end, float *dweight);
    /* One image; adds to the sums in scratch. */
    void (*conv_backward)(const struct cnn_simd_weights *w, const float *x,
                          const float *a1, const struct cnn_simd_list *list,
                          struct cnn_simd_scratch *scratch);
};

extern const struct cnn_simd_kernels cnn_simd_base;   /* any processor */
extern const struct cnn_simd_kernels cnn_simd_avx2;   /* AVX2 and FMA */
extern const struct cnn_simd_kernels cnn_simd_avx512; /* AVX-512 F, DQ, VL */
