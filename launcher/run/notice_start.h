/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear when a world begins: its size, and what does not fit. */
#pragma once

#include "launcher/config/config.h"

/* "run 'x': 3 nodes, 8+8+7 = 23 workers; to see it: ctrunctl status", on the first node alone; later
 * only the numbers, and only when they differ from `said`, which is replaced and has CT_LAYOUT_MAX
 * bytes. One node says it on a terminal only. Warnings: a node with another program; nodes that
 * prove nothing to each other, in the first world of this node and not with --quiet. */
void notice_start(const struct config *config, const struct ct_start *start,
                  bool is_first, char printed[CT_LAYOUT_MAX]);
