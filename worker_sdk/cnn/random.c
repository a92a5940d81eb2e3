/* SPDX-License-Identifier: Apache-2.0 */
/* What the network draws from Philox. */
#include "worker_sdk/cnn/random.h"

#include "worker_sdk/cnn/philox.h"

void cnn_dropout1(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP1_WORDS])
{
    for (uint32_t t = 0; t < CNN_KEEP1_WORDS; t++) {
        uint32_t r[4];

        cnn_philox(t, sample, epoch, CNN_DRAW_DROPOUT1, seed, r);
        keep[t] = (r[0] | r[2]) | (uint64_t)(r[1] | r[3]) << 32;
    }
}

void cnn_dropout2(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP2_WORDS])
{
    uint32_t r[4];

    cnn_philox(0, sample, epoch, CNN_DRAW_DROPOUT2, seed, r);
    keep[0] = r[0] | (uint64_t)r[1] << 32;
    keep[1] = r[2] | (uint64_t)r[3] << 32;
}

void cnn_uniform(uint64_t seed, uint32_t which, float bound, float *out, uint32_t n)
{
    uint32_t r[4];

    for (uint32_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            cnn_philox(i / 4, which, 0, CNN_DRAW_INIT, seed, r);
        /* 24 bits: every value is exact in a float, 1.0 cannot come out. */
        out[i] = bound * ((float)(r[i % 4] >> 8) * 0x1p-23f - 1.0f);
    }
}
