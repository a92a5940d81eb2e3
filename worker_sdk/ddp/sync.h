/* SPDX-License-Identifier: Apache-2.0 */
/* Sends rank 0's values to all ranks: a few large broadcasts instead of many small ones. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* Bytes that travel in one broadcast, as in PyTorch (250 MiB). */
enum {
    CT_DDP_SYNC_BYTES = 250 << 20
};

/* Copies the root's values of all parameters, those without gradient too. Collective. On a device
 * after the work of `stream`. */
int ct_ddp_sync(struct ctrun_group *group, const struct ctrun_param *params,
                size_t count, int root, void *stream, struct ctrun_error *err);
