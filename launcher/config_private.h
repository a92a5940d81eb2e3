/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the configuration share: each resolves its part; 0 or a code, as
 * config_resolve(). */
#ifndef LAUNCHER_CONFIG_PRIVATE_H
#define LAUNCHER_CONFIG_PRIVATE_H

#include "launcher/config.h"

/* config_stop.c: when and how workers are stopped, and what is passed on to them. */
int config_stop_resolve(struct config *out, const struct options *options,
                        struct ctrun_error *err);
/* config_roles.c: several programs in one job. Sizes and names; then, last, what they are. */
int config_roles_resolve(struct config *out, const struct options *options,
                         struct ctrun_error *err);
int config_roles_find_programs(struct config *out, const struct options *options,
                               struct ctrun_error *err);
void config_roles_deinit(struct config *config);
/* config_input.c: who reads standard input. */
int config_input_resolve(struct config *out, const struct options *options,
                         struct ctrun_error *err);
/* config_end.c: when the allocation ends, and what is done before. */
int config_end_resolve(struct config *out, const struct options *options,
                       struct ctrun_error *err);
/* config_output.c: where the workers' output goes. */
int config_output_resolve(struct config *out, const struct options *options,
                          struct ctrun_error *err);

#endif
