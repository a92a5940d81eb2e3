/* SPDX-License-Identifier: Apache-2.0 */
/* --ha[=3|5]: whether this run may have an etcd of its own, and the programs that it takes. Starts
 * nothing. */
#pragma once

#include "launcher/config/rdzv_target.h"

#define HA_ENV_ETCD    "CTRUN_HA_ETCD"
#define HA_ENV_OPENSSL "CTRUN_HA_OPENSSL"

/* After the backend and the number of nodes. 0, CTRUN_E_USAGE: it cannot be, CTRUN_E_UNSUPPORTED: a
 * program is missing here. */
int ha_config_resolve(const struct rdzv_target *to, const struct options *options,
                      struct ctrun_error *err);
