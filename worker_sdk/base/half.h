/* SPDX-License-Identifier: Apache-2.0 */
/* Converts IEEE half and bfloat16 to float and back, rounding to nearest even as x86's F16C does.
 * Pure. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float ct_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ct_bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ct_float_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;

    if (exponent == 0x1f) /* infinity, or a NaN made quiet */
        return ct_float_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0) |
                                mantissa << 13);
    if (exponent == 0) { /* subnormal: exact in float */
        float small = (float)mantissa * 0x1p-24f;
        return sign ? -small : small;
    }
    return ct_float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t ct_f16_of_float(float value)
{
    uint32_t bits = ct_bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    uint32_t odd;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* subnormal: the addition rounds at 2^-24 */
        float shifted = ct_float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (ct_bits_of_float(shifted) - 0x3f000000u));
    }
    odd = (rest >> 13) & 1u;
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float ct_float_of_bf16(uint16_t half)
{
    return ct_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t ct_bf16_of_float(float value)
{
    uint32_t bits = ct_bits_of_float(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
