/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that must be equal on all nodes of a run: how many
 * nodes it has, how often it may restart, and who serves the store of its workers. Nothing else:
 * workers, roles, scripts and their arguments may differ from node to node. */
#pragma once

#include "launcher/config/config.h"

enum {
    FINGERPRINT_TEXT_MAX = 160
};

/* For ct_join.fingerprint: the server refuses a node whose value is another one. */
uint64_t fingerprint_of(const struct config *config);
/* The same as options: "--nnodes=2:2 --max-restarts=0 --rdzv-backend=c10d". */
void fingerprint_format(char *dst, size_t size, const struct config *config);
