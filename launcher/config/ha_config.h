/* SPDX-License-Identifier: Apache-2.0 */
/* --ha[=3|5]: whether this run may have an etcd of its own, and the programs that it needs. Starts
 * nothing. */
#pragma once

#include "launcher/config/rdzv_target.h"

#define HA_ENV_ETCD    "CTRUN_HA_ETCD"
#define HA_ENV_OPENSSL "CTRUN_HA_OPENSSL"

/* Call after the backend and the number of nodes are resolved. 0, CTRUN_E_USAGE: not possible for
 * this run, CTRUN_E_UNSUPPORTED: a program is missing on this node. */
int ha_config_resolve(const struct rdzv_target *to, const struct options *options,
                      struct ctrun_error *err);
