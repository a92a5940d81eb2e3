/* SPDX-License-Identifier: Apache-2.0 */
/* How this node meets the others: backend, endpoint, our place in it, and the time
 * limits. */
#pragma once

#include "launcher/config/rdzv_target.h"

/* Fills backend, endpoint, node_rank, is_host and the times of `to`, whose sizes
 * are known. 0, -EINVAL, CTRUN_E_USAGE. */
int rdzv_resolve(const struct rdzv_target *to, const struct options *options,
                 struct ctrun_error *err);
