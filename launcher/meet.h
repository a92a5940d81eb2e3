/* SPDX-License-Identifier: Apache-2.0 */
/* How this node meets the others: backend, endpoint, our place in it, and the time
 * limits. */
#ifndef LAUNCHER_MEET_H
#define LAUNCHER_MEET_H

#include "launcher/config.h"

/* Fills backend, endpoint, node_rank, is_host and the times of `config`, whose sizes
 * are known. 0, -EINVAL, CTRUN_E_USAGE. */
int meet_resolve(struct config *config, const struct options *options,
                 struct ctrun_error *err);

#endif
