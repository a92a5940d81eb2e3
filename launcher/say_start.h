/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear when a world of several nodes begins: its size, and what does not fit. */
#ifndef LAUNCHER_SAY_START_H
#define LAUNCHER_SAY_START_H

#include "launcher/config.h"

/* "3 nodes, 8+8+7 = 23 workers", on the first node alone, and only when it differs from `said`,
 * which is replaced and has CT_LAYOUT_MAX bytes. A node with another program is a warning. */
void say_start(const struct config *config, const struct ct_start *start,
               char said[CT_LAYOUT_MAX]);

#endif
