/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that this build may hold; CMake decides which of them are compiled. */
#pragma once

#include "worker_sdk/cnn/backend.h"

extern const struct cnn_backend cnn_backend_plain; /* the oracle; one thread */
/* Of a plain engine, after forward(): the first layer whose output is not finite, static; or NULL. */
const char *cnn_plain_broken_layer(const struct cnn_engine *engine);
extern const struct cnn_backend
    cnn_backend_simd; /* own vector kernels, any processor */
extern const struct cnn_backend cnn_backend_onednn; /* oneDNN, loaded when chosen */
extern const struct cnn_backend cnn_backend_cuda;   /* one GPU */
