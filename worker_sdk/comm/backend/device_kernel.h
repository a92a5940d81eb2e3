/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that DDP needs on a device besides the collectives. Matrices are stored row by row,
 * in f32. */
#pragma once

#include <stdint.h>

/* Their names, and how many elements each makes. A word is a uint32_t.
 *
 *     TO_, FROM_           b (n) = a (n), converted between f32 and 16-bit floats, to nearest even
 *     SCALE_               a (n) *= by, in f64, rounded at the end; if c is not NULL, the f64 at c
 *                          replaces `by`, and only if it is less than 1
 *     MARK_                the word c becomes k if it is 0 and any of a (n) is NaN or infinite
 *     RAISE                b, of k bytes, becomes m unless the word a is 0
 *     SQUARES_             the squares of a (n), added in f64: b gets ct_device_parts() parts
 *     ADD_UP               the f64 c = the sum of a (n), in f64, one after the other
 *     CLIP                 a (n) are sums of squares in f64. The first f64 at b becomes the norm of
 *                          all of them, the second the factor that limits the norm to `by`. The
 *                          word c becomes the number, from 1 on, of the first sum that is not
 *                          finite, and then the factor is 1; else 0
 *     DIGEST_              adds to the u64 b a hash of a (n); the name tells the bits of an element
 *     DIVIDE               a (n) /= by; from here on all is f32
 *     ADD_BOTH, SUBTRACT   a (n) += b (n), and b becomes the same; a (n) -= b (n)
 *     CLEAR_IF, DRAW_IF    unless the word c is 0: a (n) becomes 0, or nearly normal random numbers
 *                          from the state m
 *     MULTIPLY             c (n, k) = a (n, m) b (m, k)
 *     MULTIPLY_TRANSPOSED  c (m, k) = a' b, with a (n, m) and b (n, k)
 *     DECOMPRESS           a (n, m) = b (n, k) c', with c (m, k)
 *     MAKE_ORTHONORMAL     Gram-Schmidt over the columns of a (n, k); `by` is added to the norms,
 *                          unless c is not NULL and the word c is not 0 */
#define CT_DEVICE_KERNELS(X)                                                           \
    X(TO_F16, args->n)                                                                 \
    X(TO_BF16, args->n)                                                                \
    X(FROM_F16, args->n)                                                               \
    X(FROM_BF16, args->n)                                                              \
    X(SCALE_F16, args->n)                                                              \
    X(SCALE_BF16, args->n)                                                             \
    X(SCALE_F32, args->n)                                                              \
    X(SCALE_F64, args->n)                                                              \
    X(MARK_F16, args->n)                                                               \
    X(MARK_BF16, args->n)                                                              \
    X(MARK_F32, args->n)                                                               \
    X(MARK_F64, args->n)                                                               \
    X(RAISE, 1)                                                                        \
    X(SQUARES_F16, ct_device_spread(args->n))                                          \
    X(SQUARES_BF16, ct_device_spread(args->n))                                         \
    X(SQUARES_F32, ct_device_spread(args->n))                                          \
    X(SQUARES_F64, ct_device_spread(args->n))                                          \
    X(ADD_UP, 1)                                                                       \
    X(CLIP, 1)                                                                         \
    X(DIGEST_8, ct_device_spread(args->n))                                             \
    X(DIGEST_16, ct_device_spread(args->n))                                            \
    X(DIGEST_32, ct_device_spread(args->n))                                            \
    X(DIGEST_64, ct_device_spread(args->n))                                            \
    X(DIVIDE, args->n)                                                                 \
    X(ADD_BOTH, args->n)                                                               \
    X(SUBTRACT, args->n)                                                               \
    X(CLEAR_IF, args->n)                                                               \
    X(DRAW_IF, args->n)                                                                \
    X(MULTIPLY, args->n * args->k)                                                     \
    X(MULTIPLY_TRANSPOSED, args->m * args->k)                                          \
    X(DECOMPRESS, args->n * args->m)                                                   \
    X(MAKE_ORTHONORMAL, CT_DEVICE_BLOCK)

enum ct_device_kernel {
#define CT_DEVICE_KERNEL(name, items) CT_DEVICE_##name,
    CT_DEVICE_KERNELS(CT_DEVICE_KERNEL)
#undef CT_DEVICE_KERNEL
    CT_DEVICE_KERNEL_COUNT
};

enum {
    CT_DEVICE_BLOCK = 256, /* threads of a block; also parts of a sum over a column */
    CT_DEVICE_PARTS_MAX = 256, /* blocks of one sum */
};

/* Threads that add up n elements: the same on every device, so that the sum has the same bits. */
static inline uint64_t ct_device_spread(uint64_t n)
{
    const uint64_t most = (uint64_t)CT_DEVICE_PARTS_MAX * CT_DEVICE_BLOCK;

    return n < most ? n : most;
}

/* Blocks of those threads. */
static inline uint64_t ct_device_parts(uint64_t n)
{
    return (ct_device_spread(n) + CT_DEVICE_BLOCK - 1) / CT_DEVICE_BLOCK;
}

/* Pointers point to memory of the device. */
struct ct_device_args {
    const void *a, *b, *c;
    uint64_t n, m, k;
    double by;
};

/* What a device has; 0: not known. */
enum ct_device_size {
    CT_DEVICE_MEMORY, /* bytes */
    CT_DEVICE_PROCESSORS,
    CT_DEVICE_SIZES
};
struct ct_device_facts {
    int device; /* its number */
    uint64_t sizes[CT_DEVICE_SIZES];
};
