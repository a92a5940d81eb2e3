/* SPDX-License-Identifier: Apache-2.0 */
/* What a device computes for DDP beside the collectives. Matrices stand row by row, in f32. */
#ifndef CT_COMM_DEVICE_KERNEL_H
#define CT_COMM_DEVICE_KERNEL_H

#include <stdint.h>

/* Their names, and how many elements each makes. A word is a uint32_t.
 *
 *     TO_, FROM_           b (n) = a (n), converted between f32 and halves, to nearest even
 *     SCALE_               a (n) *= by, in f64, rounded at the end
 *     DIVIDE               a (n) /= by; from here on all is f32
 *     ADD_BOTH, SUBTRACT   a (n) += b (n), and b becomes the same; a (n) -= b (n)
 *     MARK_NAN             the word c becomes 1 if any of a (n) is NaN or infinite
 *     CLEAR_IF, DRAW_IF    unless the word c is 0: a (n) becomes 0, or nearly normal numbers from the state m
 *     MULTIPLY             c (n, k) = a (n, m) b (m, k)
 *     MULTIPLY_TRANSPOSED  c (m, k) = a' b, with a (n, m) and b (n, k)
 *     DECOMPRESS           a (n, m) = b (n, k) c', with c (m, k)
 *     MAKE_ORTHONORMAL     Gram-Schmidt over the columns of a (n, k); `by` is added to the norms, unless
 *                          there is a word c that is not 0 */
#define CT_DEVICE_KERNELS(X)                                                           \
    X(TO_F16, args->n)                                                                 \
    X(TO_BF16, args->n)                                                                \
    X(FROM_F16, args->n)                                                               \
    X(FROM_BF16, args->n)                                                              \
    X(SCALE_F16, args->n)                                                              \
    X(SCALE_BF16, args->n)                                                             \
    X(SCALE_F32, args->n)                                                              \
    X(SCALE_F64, args->n)                                                              \
    X(DIVIDE, args->n)                                                                 \
    X(ADD_BOTH, args->n)                                                               \
    X(SUBTRACT, args->n)                                                               \
    X(MARK_NAN, args->n)                                                               \
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
    CT_DEVICE_BLOCK = 256 /* threads; sums over a column are made of as many parts */
};

/* Pointers are memory of the device. */
struct ct_device_args {
    const void *a, *b, *c;
    uint64_t n, m, k;
    double by;
};

#endif
