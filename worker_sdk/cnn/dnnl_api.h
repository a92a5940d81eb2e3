/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's C API (2.x), loaded when it is chosen: a program that does not use it starts without
 * its JIT, its OpenMP and its OpenCL loader, and runs on machines that lack them. */
#pragma once

#include <dnnl.h>

#include "worker_sdk/include/ctrun.h"

/* Every function that we call; the header's own declarations give the types. */
#define CNN_DNNL_FUNCTIONS(X)                                                          \
    X(engine_create)                                                                   \
    X(engine_destroy)                                                                  \
    X(stream_create)                                                                   \
    X(stream_destroy)                                                                  \
    X(stream_wait)                                                                     \
    X(memory_desc_init_by_tag)                                                         \
    X(memory_desc_get_size)                                                            \
    X(memory_desc_equal)                                                               \
    X(memory_create)                                                                   \
    X(memory_destroy)                                                                  \
    X(memory_get_data_handle)                                                          \
    X(memory_set_data_handle)                                                          \
    X(memory_get_memory_desc)                                                          \
    X(primitive_attr_create)                                                           \
    X(primitive_attr_destroy)                                                          \
    X(primitive_attr_set_post_ops)                                                     \
    X(post_ops_create)                                                                 \
    X(post_ops_destroy)                                                                \
    X(post_ops_append_eltwise)                                                         \
    X(primitive_desc_create)                                                           \
    X(primitive_desc_destroy)                                                          \
    X(primitive_desc_query_md)                                                         \
    X(primitive_create)                                                                \
    X(primitive_destroy)                                                               \
    X(primitive_execute)                                                               \
    X(reorder_primitive_desc_create)                                                   \
    X(convolution_forward_desc_init)                                                   \
    X(convolution_backward_data_desc_init)                                             \
    X(convolution_backward_weights_desc_init)                                          \
    X(pooling_forward_desc_init)                                                       \
    X(pooling_backward_desc_init)                                                      \
    X(sgemm)

struct cnn_dnnl_api {
#define CNN_DNNL_FIELD(name) __typeof__(dnnl_##name) *name;
    CNN_DNNL_FUNCTIONS(CNN_DNNL_FIELD)
#undef CNN_DNNL_FIELD
    void (*set_threads)(int); /* libgomp's omp_set_num_threads, or NULL */
};

/* Loads the library on the first call; the table stays valid. NULL: why says what is missing. Sets
 * GOMP_SPINCOUNT unless the user chose a policy: libgomp reads it while it is loaded, and by
 * default it spins for so long that a rank blocks another rank on a shared core. */
const struct cnn_dnnl_api *cnn_dnnl_load(char *why, size_t size);
