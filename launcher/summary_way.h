/* SPDX-License-Identifier: Apache-2.0 */
/* The block about a node whose workers cannot reach group rank 0 (agent/way.h has the text). */
#ifndef LAUNCHER_SUMMARY_WAY_H
#define LAUNCHER_SUMMARY_WAY_H

#include "launcher/messages.h"

void summary_way_format(struct messages_block *out, const struct ct_failure *failure);

#endif
