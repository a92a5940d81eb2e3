/* SPDX-License-Identifier: Apache-2.0 */
/* The user and run of this endpoint, for the message that another run is here. */
#pragma once

#include "rendezvous/session/run.h"

/* " of user NAME" or " of uid N"; cut when it does not fit. */
void endpoint_owner_format(char *dst, size_t size);
/* " (3/4 nodes, up 12 min)" for the run that is served here; empty if `run` is NULL: none of its
 * nodes has joined yet. */
void endpoint_owner_format_job(const struct run *run, char *dst, size_t size);
