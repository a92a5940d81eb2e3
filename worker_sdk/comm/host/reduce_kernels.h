/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of reduce.c, compiled once per instruction set by the file that includes this and
 * defines KERNEL_TABLE. Four vectors at a time are reduced over all sources in registers and stored
 * to all destinations: every byte is loaded once and stored once. No include guard: it is a
 * template. */
#include <stdint.h>

#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/host/reduce.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__AVX2__)
enum {
    VECTOR_BYTES = 32,
    UNROLL = 4
};
#else
enum {
    VECTOR_BYTES = 16,
    UNROLL = 4
};
#endif

#define VECTOR(T) __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias)) T

typedef VECTOR(uint8_t) u8_vec;
typedef VECTOR(int8_t) i8_vec;
typedef VECTOR(uint32_t) u32_vec;
typedef VECTOR(int32_t) i32_vec;
typedef VECTOR(uint64_t) u64_vec;
typedef VECTOR(int64_t) i64_vec;
typedef VECTOR(float) f32_vec;
typedef VECTOR(double) f64_vec;

/* A vector comparison has all bits set where it is true: selects bits by that mask. */
#define PICK(M, mask, b, a) (((M)(b) & (mask)) | ((M)(a) & ~(mask)))

#define VSUM(V, M, a, b)  ((a) + (b))
#define VPROD(V, M, a, b) ((a) * (b))
#define VMIN(V, M, a, b)  ((V)PICK(M, (M)(((b) < (a)) | ((b) != (b))), b, a))
#define VMAX(V, M, a, b)  ((V)PICK(M, (M)(((b) > (a)) | ((b) != (b))), b, a))
#define SSUM(T, a, b)     ((T)((a) + (b)))
#define SPROD(T, a, b)    ((T)((a) * (b)))
#define SMIN(T, a, b)     ((b) < (a) || (b) != (b) ? (b) : (a))
#define SMAX(T, a, b)     ((b) > (a) || (b) != (b) ? (b) : (a))
#define NO_DIVISION(T, a) ((void)0)
/* Multiplying by the reciprocal of a power of two gives the same bits as dividing, and is
 * faster. */
#define DIVISION(T, a)                                                                 \
    (divisor == 1.0f            ? (void)0                                              \
     : is_power_of_two(divisor) ? (void)((a) = (a) * (1 / (T)divisor))                 \
                                : (void)((a) = (a) / (T)divisor))

static inline bool is_power_of_two(float positive)
{
    union {
        float value;
        uint32_t bits;
    } as = {positive};

    return (as.bits & 0x7fffff) == 0;
}

#define DEFINE_KERNEL(NAME, T, V, M, VOP, SOP, FINISH)                                 \
    static void NAME(void *const *dst, int dst_count, const void *const *src,          \
                     int src_count, size_t count, float divisor)                       \
    {                                                                                  \
        const size_t lanes = VECTOR_BYTES / sizeof(T);                                 \
        size_t i = 0;                                                                  \
                                                                                       \
        (void)divisor;                                                                 \
        for (; i + UNROLL * lanes <= count; i += UNROLL * lanes) {                     \
            V acc[UNROLL];                                                             \
            for (int u = 0; u < UNROLL; u++)                                           \
                acc[u] = ((const V *)((const T *)src[0] + i))[u];                      \
            for (int k = 1; k < src_count; k++) {                                      \
                for (int u = 0; u < UNROLL; u++) {                                     \
                    V next = ((const V *)((const T *)src[k] + i))[u];                  \
                    acc[u] = VOP(V, M, acc[u], next);                                  \
                }                                                                      \
            }                                                                          \
            for (int u = 0; u < UNROLL; u++)                                           \
                FINISH(T, acc[u]);                                                     \
            for (int d = 0; d < dst_count; d++)                                        \
                for (int u = 0; u < UNROLL; u++)                                       \
                    ((V *)((T *)dst[d] + i))[u] = acc[u];                              \
        }                                                                              \
        for (; i < count; i++) {                                                       \
            T acc = ((const T *)src[0])[i];                                            \
            for (int k = 1; k < src_count; k++) {                                      \
                T next = ((const T *)src[k])[i];                                       \
                acc = SOP(T, acc, next);                                               \
            }                                                                          \
            FINISH(T, acc);                                                            \
            for (int d = 0; d < dst_count; d++)                                        \
                ((T *)dst[d])[i] = acc;                                                \
        }                                                                              \
    }

/* HALF_LANES 16-bit elements become one vector of floats, and back. */
enum {
    HALF_LANES = VECTOR_BYTES / (int)sizeof(float)
};

static inline f32_vec load_bf16(const uint16_t *from)
{
    u32_vec bits = {0};

    for (int i = 0; i < HALF_LANES; i++)
        bits[i] = (uint32_t)from[i] << 16;
    return (f32_vec)bits;
}

static inline void store_bf16(uint16_t *to, f32_vec value)
{
    u32_vec bits = (u32_vec)value;
    u32_vec is_nan = (u32_vec)((bits & 0x7fffffffu) > 0x7f800000u);
    u32_vec rounded = bits + 0x7fffu + ((bits >> 16) & 1u);

    bits = (((bits | 0x400000u) & is_nan) | (rounded & ~is_nan)) >> 16;
    for (int i = 0; i < HALF_LANES; i++)
        to[i] = (uint16_t)bits[i];
}

static inline f32_vec load_f16(const uint16_t *from)
{
#if defined(__F16C__)
    return (f32_vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)from));
#else
    f32_vec value = {0};

    for (int i = 0; i < HALF_LANES; i++)
        value[i] = ct_float_of_f16(from[i]);
    return value;
#endif
}

static inline void store_f16(uint16_t *to, f32_vec value)
{
#if defined(__F16C__)
    _mm_storeu_si128((__m128i_u *)to,
                     _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < HALF_LANES; i++)
        to[i] = ct_f16_of_float(value[i]);
#endif
}

#define DEFINE_HALF_KERNEL(NAME, KIND, VOP, SOP)                                       \
    static void NAME(void *const *dst, int dst_count, const void *const *src,          \
                     int src_count, size_t count, float divisor)                       \
    {                                                                                  \
        size_t i = 0;                                                                  \
                                                                                       \
        for (; i + HALF_LANES <= count; i += HALF_LANES) {                             \
            f32_vec acc = load_##KIND((const uint16_t *)src[0] + i);                   \
            for (int k = 1; k < src_count; k++) {                                      \
                f32_vec next = load_##KIND((const uint16_t *)src[k] + i);              \
                acc = VOP(f32_vec, i32_vec, acc, next);                                \
            }                                                                          \
            DIVISION(float, acc);                                                      \
            for (int d = 0; d < dst_count; d++)                                        \
                store_##KIND((uint16_t *)dst[d] + i, acc);                             \
        }                                                                              \
        for (; i < count; i++) {                                                       \
            float acc = ct_float_of_##KIND(((const uint16_t *)src[0])[i]);             \
            for (int k = 1; k < src_count; k++) {                                      \
                float next = ct_float_of_##KIND(((const uint16_t *)src[k])[i]);        \
                acc = SOP(float, acc, next);                                           \
            }                                                                          \
            DIVISION(float, acc);                                                      \
            for (int d = 0; d < dst_count; d++)                                        \
                ((uint16_t *)dst[d])[i] = ct_##KIND##_of_float(acc);                   \
        }                                                                              \
    }

/* Signed integers add and multiply as unsigned ones: same bits, and wrapping is defined. */
DEFINE_KERNEL(u8_sum, uint8_t, u8_vec, i8_vec, VSUM, SSUM, NO_DIVISION)
DEFINE_KERNEL(u8_prod, uint8_t, u8_vec, i8_vec, VPROD, SPROD, NO_DIVISION)
DEFINE_KERNEL(u8_min, uint8_t, u8_vec, u8_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(u8_max, uint8_t, u8_vec, u8_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_KERNEL(i8_min, int8_t, i8_vec, i8_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(i8_max, int8_t, i8_vec, i8_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_KERNEL(i32_sum, uint32_t, u32_vec, u32_vec, VSUM, SSUM, NO_DIVISION)
DEFINE_KERNEL(i32_prod, uint32_t, u32_vec, u32_vec, VPROD, SPROD, NO_DIVISION)
DEFINE_KERNEL(i32_min, int32_t, i32_vec, i32_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(i32_max, int32_t, i32_vec, i32_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_KERNEL(i64_sum, uint64_t, u64_vec, u64_vec, VSUM, SSUM, NO_DIVISION)
DEFINE_KERNEL(i64_prod, uint64_t, u64_vec, u64_vec, VPROD, SPROD, NO_DIVISION)
DEFINE_KERNEL(i64_min, int64_t, i64_vec, i64_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(i64_max, int64_t, i64_vec, i64_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_KERNEL(f32_sum, float, f32_vec, i32_vec, VSUM, SSUM, DIVISION)
DEFINE_KERNEL(f32_prod, float, f32_vec, i32_vec, VPROD, SPROD, NO_DIVISION)
DEFINE_KERNEL(f32_min, float, f32_vec, i32_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(f32_max, float, f32_vec, i32_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_KERNEL(f64_sum, double, f64_vec, i64_vec, VSUM, SSUM, DIVISION)
DEFINE_KERNEL(f64_prod, double, f64_vec, i64_vec, VPROD, SPROD, NO_DIVISION)
DEFINE_KERNEL(f64_min, double, f64_vec, i64_vec, VMIN, SMIN, NO_DIVISION)
DEFINE_KERNEL(f64_max, double, f64_vec, i64_vec, VMAX, SMAX, NO_DIVISION)
DEFINE_HALF_KERNEL(f16_sum, f16, VSUM, SSUM)
DEFINE_HALF_KERNEL(f16_prod, f16, VPROD, SPROD)
DEFINE_HALF_KERNEL(f16_min, f16, VMIN, SMIN)
DEFINE_HALF_KERNEL(f16_max, f16, VMAX, SMAX)
DEFINE_HALF_KERNEL(bf16_sum, bf16, VSUM, SSUM)
DEFINE_HALF_KERNEL(bf16_prod, bf16, VPROD, SPROD)
DEFINE_HALF_KERNEL(bf16_min, bf16, VMIN, SMIN)
DEFINE_HALF_KERNEL(bf16_max, bf16, VMAX, SMAX)

const ct_reduce_table KERNEL_TABLE = {
    [CTRUN_U8] = {u8_sum, u8_min, u8_max, u8_prod},
    [CTRUN_I8] = {u8_sum, i8_min, i8_max, u8_prod},
    [CTRUN_I32] = {i32_sum, i32_min, i32_max, i32_prod},
    [CTRUN_I64] = {i64_sum, i64_min, i64_max, i64_prod},
    [CTRUN_F16] = {f16_sum, f16_min, f16_max, f16_prod},
    [CTRUN_BF16] = {bf16_sum, bf16_min, bf16_max, bf16_prod},
    [CTRUN_F32] = {f32_sum, f32_min, f32_max, f32_prod},
    [CTRUN_F64] = {f64_sum, f64_min, f64_max, f64_prod},
};
