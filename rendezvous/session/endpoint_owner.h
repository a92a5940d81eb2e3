/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds this endpoint, for a person whose run has met another one here. */
#pragma once

#include "rendezvous/session/run.h"

/* " of user NAME" or " of uid N"; cut when it does not fit. */
void endpoint_owner_format(char *dst, size_t size);
/* " (3/4 nodes, up 12 min)" of the run that is served here; empty for NULL: none of its nodes has
 * come yet. */
void endpoint_owner_format_job(const struct run *run, char *dst, size_t size);
