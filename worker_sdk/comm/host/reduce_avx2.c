/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction loops for AVX2 and F16C; CMake compiles this file with those options. There is no
 * AVX-512 version, because the loops are limited by memory. */
#define KERNEL_TABLE ct_reduce_avx2
#include "worker_sdk/comm/host/reduce_kernels.h"
