/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), for the
 * host and for kernels: 128 random bits from a 128-bit counter (c0 lowest) and a 64-bit key. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define CNN_ANYWHERE __host__ __device__ static inline
#else
#define CNN_ANYWHERE static inline
#endif

CNN_ANYWHERE void cnn_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                             uint64_t key, uint32_t out[4])
{
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
