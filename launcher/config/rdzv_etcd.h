/* SPDX-License-Identifier: Apache-2.0 */
/* --rdzv-backend=etcd (or etcd-v2, for the same server): which etcd, which keys. */
#pragma once

#include "launcher/config/rdzv_target.h"

/* True for the names of this backend. */
bool rdzv_etcd_is_named(const char *backend);
/* Fills what CONFIG_ETCD needs. 0, -EINVAL, CTRUN_E_USAGE. */
int rdzv_etcd_resolve(const struct rdzv_target *to, const struct options *options,
                      struct ctrun_error *err);
