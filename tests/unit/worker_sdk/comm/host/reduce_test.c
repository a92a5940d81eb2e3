/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the reduction loops with arithmetic on one element at a time, for every type, operation,
 * length and instruction set. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/host/reduce.h"

enum {
    LONGEST = 131,
    SOURCES = 5,
    GUARD = 32
};

static bool is_float(enum ctrun_dtype dtype)
{
    return dtype >= CTRUN_F16 && dtype <= CTRUN_F64;
}

/* One element as the widest type of its kind. */
static double read_float(enum ctrun_dtype dtype, const void *at)
{
    uint16_t half;
    float single;
    double value;

    memcpy(&half, at, 2);
    if (dtype == CTRUN_F16)
        return (double)ct_float_of_f16(half);
    if (dtype == CTRUN_BF16)
        return (double)ct_float_of_bf16(half);
    memcpy(&single, at, 4);
    if (dtype == CTRUN_F32)
        return (double)single;
    memcpy(&value, at, 8);
    return value;
}

static uint64_t read_int(enum ctrun_dtype dtype, const void *at)
{
    uint64_t value = 0;
    int32_t word;

    memcpy(&value, at, ctrun_dtype_size(dtype));
    if (dtype == CTRUN_I8)
        return (uint64_t)(int64_t)(int8_t)value;
    if (dtype != CTRUN_I32)
        return value;
    memcpy(&word, at, 4);
    return (uint64_t)(int64_t)word;
}

/* The expected result: f16 and bf16 are computed in float, others in their own type. */
static void expect(void *out, enum ctrun_dtype dtype, enum ctrun_op op, int divisor,
                   const unsigned char (*src)[LONGEST * 8 + GUARD], int n, size_t i)
{
    size_t size = ctrun_dtype_size(dtype);
    double acc = 0;
    uint64_t whole = 0;

    for (int k = 0; k < n; k++) {
        const void *at = src[k] + i * size;
        double x = is_float(dtype) ? read_float(dtype, at) : 0;
        uint64_t w = is_float(dtype) ? 0 : read_int(dtype, at);
        bool less = dtype == CTRUN_U8 ? w < whole : (int64_t)w < (int64_t)whole;
        if (k == 0)
            acc = x, whole = w;
        else if (op == CTRUN_MIN)
            acc = x < acc || x != x ? x : acc, whole = less ? w : whole;
        else if (op == CTRUN_MAX)
            acc = x > acc || x != x ? x : acc, whole = less ? whole : w;
        else if (op == CTRUN_PROD)
            acc = acc * x, whole = whole * w;
        else
            acc = acc + x, whole = whole + w;
        if (dtype != CTRUN_F64)
            acc = (double)(float)acc;
    }
    if (op == CTRUN_AVG)
        acc = dtype == CTRUN_F64 ? acc / divisor
                                 : (double)((float)acc / (float)divisor);
    if (dtype == CTRUN_F64)
        memcpy(out, &acc, 8);
    else if (dtype == CTRUN_F32)
        memcpy(out, &(float){(float)acc}, 4);
    else if (dtype == CTRUN_F16)
        memcpy(out, &(uint16_t){ct_f16_of_float((float)acc)}, 2);
    else if (dtype == CTRUN_BF16)
        memcpy(out, &(uint16_t){ct_bf16_of_float((float)acc)}, 2);
    else
        memcpy(out, &whole, size);
}

static void fill(unsigned char *at, enum ctrun_dtype dtype, size_t count,
                 unsigned *seed)
{
    for (size_t i = 0; i < count; i++) {
        float value = (float)(rand_r(seed) % 4001 - 2000) / 256.0f;
        double wide = (double)value;
        uint64_t whole = (uint64_t)rand_r(seed) * 2654435761u * (uint64_t)rand_r(seed);
        uint16_t f16 = ct_f16_of_float(value);
        uint16_t bf16 = ct_bf16_of_float(value);
        const void *from = dtype == CTRUN_F64    ? (const void *)&wide
                           : dtype == CTRUN_F32  ? (const void *)&value
                           : dtype == CTRUN_F16  ? (const void *)&f16
                           : dtype == CTRUN_BF16 ? (const void *)&bf16
                                                 : (const void *)&whole;
        memcpy(at + i * ctrun_dtype_size(dtype), from, ctrun_dtype_size(dtype));
    }
}

static void check_loop(ct_reduce_fn *loop, enum ctrun_dtype dtype, enum ctrun_op op)
{
    static unsigned char src[SOURCES][LONGEST * 8 + GUARD];
    static unsigned char out[2][LONGEST * 8 + GUARD];
    size_t size = ctrun_dtype_size(dtype);
    unsigned seed = 7;

    for (size_t count = 0; count <= LONGEST; count++) {
        int n = 1 + (int)(count % SOURCES);
        int divisor = 2 + (int)(count % 3);
        const void *from[SOURCES];
        void *to[2] = {out[0], out[1]};
        memset(out, 0xa5, sizeof out);
        for (int k = 0; k < n; k++) {
            fill(src[k], dtype, count, &seed);
            from[k] = src[k];
        }
        loop(to, 2, from, n, count, op == CTRUN_AVG ? (float)divisor : 1.0f);
        for (size_t i = 0; i < count; i++) {
            unsigned char want[8];
            expect(want, dtype, op, divisor,
                   (const unsigned char(*)[LONGEST * 8 + GUARD]) src, n, i);
            if (memcmp(out[0] + i * size, want, size) ||
                memcmp(out[1] + i * size, want, size))
                fail_msg("dtype %d, op %d, %d sources, element %zu of %zu", (int)dtype,
                         (int)op, n, i, count);
        }
        for (int k = 0; k < GUARD; k++)
            assert_int_equal(out[0][count * size + (size_t)k], 0xa5);
    }
}

static void check_table(const ct_reduce_table *table)
{
    static const int column[] = {0, 0, 1, 2, 3}; /* of SUM, AVG, MIN, MAX, PROD */

    for (int dtype = 0; dtype < CT_REDUCE_DTYPES; dtype++)
        for (int op = CTRUN_SUM; op <= CTRUN_PROD; op++)
            if (ct_reduce_is_supported((enum ctrun_dtype)dtype, (enum ctrun_op)op))
                check_loop((*table)[dtype][column[op]], (enum ctrun_dtype)dtype,
                           (enum ctrun_op)op);
}

TEST(plain_loops_equal_the_oracle)
{
    check_table(&ct_reduce_plain);
}

TEST(avx2_loops_equal_the_oracle)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        check_table(&ct_reduce_avx2);
        return;
    }
#endif
    skip();
}

TEST(every_half_survives_the_way_to_float_and_back)
{
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        bool f16_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
        bool bf16_nan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f);
        uint16_t f16 = ct_f16_of_float(ct_float_of_f16(half));
        uint16_t bf16 = ct_bf16_of_float(ct_float_of_bf16(half));
        assert_int_equal(f16, f16_nan ? half | 0x200 : half);
        assert_int_equal(bf16, bf16_nan ? half | 0x40 : half);
    }
}

TEST(halves_round_to_nearest_even)
{
    assert_int_equal(ct_f16_of_float(65519.0f), 0x7bff); /* the largest */
    assert_int_equal(ct_f16_of_float(65520.0f), 0x7c00); /* half-way: to infinity */
    assert_int_equal(ct_f16_of_float(2049.0f), 0x6800);  /* half-way: down to even */
    assert_int_equal(ct_f16_of_float(2051.0f), 0x6802);  /* half-way: up to even */
    assert_int_equal(ct_f16_of_float(0x1p-25f), 0);      /* half of the smallest */
    assert_int_equal(ct_f16_of_float(0x1.8p-25f), 1);
    assert_int_equal(ct_bf16_of_float(ct_float_of_bits(0x3f808000)), 0x3f80);
    assert_int_equal(ct_bf16_of_float(ct_float_of_bits(0x3f818000)), 0x3f82);
}

TEST(a_nan_stays_a_nan)
{
    const float with[] = {1, 2, 3, NAN, 5, 6, 7, 8, 9, NAN};
    const float without[10] = {0};
    float out[10];
    void *to = out;

    for (int swap = 0; swap < 2; swap++) {
        const void *from[2] = {swap ? without : with, swap ? with : without};
        for (int op = CTRUN_SUM; op <= CTRUN_PROD; op++) {
            const struct ct_reduction how = {CTRUN_F32, (enum ctrun_op)op, 1};
            ct_reduce(&how, &to, 1, from, 2, 10);
            assert_true(isnan(out[3]) && isnan(out[9]) && !isnan(out[4]));
        }
    }
}
