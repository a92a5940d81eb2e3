/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by counter: the same (seed, purpose, epoch, sample, block) gives the same bits on
 * every rank, thread and device, independent of earlier draws. Philox 4x32-10 (Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). */
#pragma once

#include <stdint.h>

/* What a draw is for; keeps streams separate. The values never change: masks depend on them. */
enum cnn_purpose {
    CNN_DRAW_INIT = 1,
    CNN_DRAW_DROPOUT1 = 2,
    CNN_DRAW_DROPOUT2 = 3
};

enum {
    CNN_KEEP1_WORDS = 144,
    CNN_KEEP2_WORDS = 2
};

/* Dropout of one sample, keyed by its index in the data set, not by its place in a batch.
 *
 * Dropout 1 (p = 1/4) covers the pooled image: bit c of keep[t] says whether channel c of
 * pooling window t = 12 * row + column is kept (two random bits, dropped when both are 0).
 * Dropout 2 (p = 1/2) covers the hidden layer: bit i % 64 of keep[i / 64] is unit i. */
void cnn_dropout1(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP1_WORDS]);
void cnn_dropout2(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP2_WORDS]);

/* What kept values are multiplied with: 1 / (1 - p). */
#define CNN_SCALE1 (4.0f / 3.0f)
#define CNN_SCALE2 2.0f

/* n floats, uniform in [-bound, bound), of parameter number `which`. */
void cnn_uniform(uint64_t seed, uint32_t which, float bound, float *out, uint32_t n);
