/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <stdatomic.h>
#endif

enum {
    POLYNOMIAL = 0x82f63b78, /* bits in reverse */
};

/* Half a byte at a time, with a table of 16 words that can be checked by hand. */
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
/* The instruction takes three cycles, and the next one can begin after one cycle: so three
 * stretches of this length are summed in parallel. As the sum is linear, the sum of two stretches
 * is the sum of the first, shifted by as many zero bytes as the second has, xor the sum of the
 * second. */
enum {
    STRETCH = 8192
};

/* Instructions by name: compilers differ in the options that their built-in functions need. */
static uint64_t add_word(uint64_t sum, uint64_t word)
{
    __asm__("crc32q %1, %0" : "+r"(sum) : "rm"(word));
    return sum;
}

static uint32_t add_byte(uint32_t sum, uint8_t byte)
{
    __asm__("crc32b %1, %0" : "+r"(sum) : "rm"(byte));
    return sum;
}

static uint32_t moved[4][256]; /* each byte of a sum, shifted by STRETCH zero bytes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t load(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

static uint32_t add_zeros(uint32_t sum)
{
    uint64_t out = sum;

    for (int i = 0; i < STRETCH; i += 8)
        out = add_word(out, 0);
    return (uint32_t)out;
}

static void make_table(void)
{
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t sum = add_zeros(1u << bit);

        for (uint32_t value = 0; value < 256; value++)
            if (value >> (bit % 8) & 1)
                moved[bit / 8][value] ^= sum;
    }
}

static uint32_t move(uint32_t sum)
{
    return moved[0][sum & 255] ^ moved[1][sum >> 8 & 255] ^ moved[2][sum >> 16 & 255] ^
           moved[3][sum >> 24];
}

/* Stores past the caches. `to` is aligned to 8 bytes; NULL: nothing is stored. */
static inline void store(uint8_t *to, uint64_t word)
{
    if (to)
        __asm__ volatile("movnti %1, %0" : "=m"(*(uint64_t *)to) : "r"(word));
}

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE uint64_t take(uint64_t sum, const uint8_t *at, uint8_t *to,
                                   size_t i)
{
    const uint64_t word = load(at + i);

    store(to ? to + i : NULL, word);
    return add_word(sum, word);
}

static ALWAYS_INLINE uint32_t sum_three(uint32_t sum, const uint8_t *at, uint8_t *to)
{
    uint64_t first = sum, second = 0, third = 0;

    for (size_t i = 0; i < STRETCH; i += 8) {
        first = take(first, at, to, i);
        second = take(second, at, to, STRETCH + i);
        third = take(third, at, to, 2 * STRETCH + i);
    }
    return move(move((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
}

/* Compiled twice, with a copy and without. */
static ALWAYS_INLINE uint32_t sum_fast(uint32_t crc, const uint8_t *at, uint8_t *to,
                                       size_t length)
{
    uint64_t sum = ~crc;

    for (; to && (uintptr_t)to % 8 && length > 0; length--) {
        *to++ = *at;
        sum = add_byte((uint32_t)sum, *at++);
    }
    if (length >= 3 * STRETCH)
        (void)pthread_once(&once, make_table);
    for (; length >= 3 * STRETCH; at += 3 * STRETCH, length -= 3 * STRETCH) {
        sum = sum_three((uint32_t)sum, at, to);
        to = to ? to + 3 * STRETCH : NULL;
    }
    for (; length >= 8; at += 8, length -= 8) {
        sum = take(sum, at, to, 0);
        to = to ? to + 8 : NULL;
    }
    for (; length > 0; at++, length--) {
        sum = add_byte((uint32_t)sum, *at);
        if (to)
            *to++ = *at;
    }
    return ~(uint32_t)sum;
}

/* Asks the CPU at the first use, and once: CPUID traps in a virtual machine, for tens of microseconds. With
 * __builtin_cpu_supports() a constructor would ask at each start of a program that links this file. */
static bool has_instruction(void)
{
    static atomic_int known; /* 0: not asked yet, 1: yes, -1: no */
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    unsigned a, b, c, d;

    if (has == 0) {
        has = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) ? 1 : -1;
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has > 0;
}

uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length)
{
    return has_instruction() ? sum_fast(crc, data, NULL, length)
                             : ct_crc32c_plain(crc, data, length);
}

uint32_t ct_crc32c_copy(uint32_t crc, void *restrict to, const void *restrict data,
                        size_t length)
{
    if (!has_instruction()) {
        memcpy(to, data, length);
        return ct_crc32c_plain(crc, data, length);
    }
    crc = sum_fast(crc, data, to, length);
    __asm__ volatile("sfence"
                     :
                     :
                     : "memory"); /* non-temporal stores are not ordered otherwise */
    return crc;
}
#else
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length)
{
    return ct_crc32c_plain(crc, data, length);
}

uint32_t ct_crc32c_copy(uint32_t crc, void *restrict to, const void *restrict data,
                        size_t length)
{
    memcpy(to, data, length);
    return ct_crc32c_plain(crc, data, length);
}
#endif
