/* SPDX-License-Identifier: Apache-2.0 */
/* --rdzv-backend=etcd (or etcd-v2, whose server is the same): which etcd, which keys. */
#ifndef LAUNCHER_MEET_ETCD_H
#define LAUNCHER_MEET_ETCD_H

#include "launcher/config.h"

/* True for the names of this backend. */
bool meet_etcd_is_named(const char *backend);
/* Fills what CONFIG_ETCD needs. 0, -EINVAL, CTRUN_E_USAGE. */
int meet_etcd_resolve(struct config *config, const struct options *options,
                      struct ctrun_error *err);

#endif
