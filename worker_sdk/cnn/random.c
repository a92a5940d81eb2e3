/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32-10 and what the network draws from it. */
#include "worker_sdk/cnn/random.h"

void cnn_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void cnn_dropout1(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP1_WORDS])
{
    for (uint32_t t = 0; t < CNN_KEEP1_WORDS; t++) {
        const uint32_t counter[4] = {t, sample, epoch, CNN_DRAW_DROPOUT1};
        uint32_t r[4];

        cnn_philox(counter, seed, r);
        keep[t] = (r[0] | r[2]) | (uint64_t)(r[1] | r[3]) << 32;
    }
}

void cnn_dropout2(uint64_t seed, uint32_t epoch, uint32_t sample,
                  uint64_t keep[CNN_KEEP2_WORDS])
{
    const uint32_t counter[4] = {0, sample, epoch, CNN_DRAW_DROPOUT2};
    uint32_t r[4];

    cnn_philox(counter, seed, r);
    keep[0] = r[0] | (uint64_t)r[1] << 32;
    keep[1] = r[2] | (uint64_t)r[3] << 32;
}

void cnn_uniform(uint64_t seed, uint32_t which, float bound, float *out, uint32_t n)
{
    uint32_t r[4];

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {i / 4, which, 0, CNN_DRAW_INIT};

        if (i % 4 == 0)
            cnn_philox(counter, seed, r);
        /* 24 bits: every value is exact in a float, 1.0 cannot come out. */
        out[i] = bound * ((float)(r[i % 4] >> 8) * 0x1p-23f - 1.0f);
    }
}
