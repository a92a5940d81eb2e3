/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the configuration share: each resolves its part; 0 or a code, as
 * config_resolve(). */
#pragma once

#include "launcher/config/config.h"

/* config_roles.c: several programs in one job. Sizes and names first; programs last. */
int config_roles_resolve(struct config *out, const struct options *options,
                         struct ctrun_error *err);
int config_roles_find_programs(struct config *out, const struct options *options,
                               struct ctrun_error *err);
void config_roles_deinit(struct config *config);
