/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/crc32c.h"

#include <string.h>

enum {
    POLYNOMIAL = 0x82f63b78, /* bits in reverse */
};

/* Half a byte at a time: 16 words, that everybody can check. */
uint32_t ct_crc32c_plain(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    uint32_t table[16];

    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? (uint32_t)POLYNOMIAL : 0);
    }
    crc = ~crc;
    for (; length > 0; at++, length--) {
        crc ^= *at;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t
sum_fast(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    uint64_t sum = ~crc;

    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; length > 0; at++, length--)
        sum = __builtin_ia32_crc32qi((uint32_t)sum, *at);
    return ~(uint32_t)sum;
}

uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length)
{
    return __builtin_cpu_supports("sse4.2") ? sum_fast(crc, data, length)
                                            : ct_crc32c_plain(crc, data, length);
}
#else
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length)
{
    return ct_crc32c_plain(crc, data, length);
}
#endif
