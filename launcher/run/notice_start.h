/* SPDX-License-Identifier: Apache-2.0 */
/* Notices when a round begins: the size of the world, and warnings. */
#pragma once

#include "launcher/config/config.h"

/* "run 'x': 3 nodes, 8+8+7 = 23 workers; to see it: ctrunctl status", only on the first node; later
 * only the numbers, and only when they differ from `said`, which is replaced and has CT_LAYOUT_MAX
 * bytes. A run of one node prints it only on a terminal. Warnings: a node runs another program; the
 * nodes have no token, in the first round of this node and not with --quiet. */
void notice_start(const struct config *config, const struct ct_start *start,
                  bool is_first, char printed[CT_LAYOUT_MAX]);
/* "log files: FOLDER", where the line of notice_start() is printed; elsewhere with --verbose. */
void notice_logs(const struct ct_start *start, const char *folder);
