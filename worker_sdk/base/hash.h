/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a with 64 bits: detects accidental differences, but no attack. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CT_HASH_START UINT64_C(0xcbf29ce484222325)
#define CT_HASH_PRIME UINT64_C(0x100000001b3)

/* The hash of the bytes that `hash` covers, followed by these bytes. */
static inline uint64_t ct_hash_add(uint64_t hash, const void *data, size_t length)
{
    const uint8_t *at = (const uint8_t *)data;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * CT_HASH_PRIME;
    return hash;
}

static inline uint64_t ct_hash(const void *data, size_t length)
{
    return ct_hash_add(CT_HASH_START, data, length);
}

/* The finaliser of splitmix64: each bit of x changes each bit of the result with a chance of one
 * half. */
static inline uint64_t ct_hash_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
