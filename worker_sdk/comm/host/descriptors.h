/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process may open the descriptors that a group takes. Asked before the others know of this member: a
 * lack is then its own. Shared memory takes one for each other member that has it, and TCP two for each member and
 * a few for all. A group on one node whose members turn out not to share memory lacks them later. */
#pragma once

#include "worker_sdk/comm/backend/backend.h"
#include "worker_sdk/comm/host/peer.h"

/* 0; -EMFILE, with how many are needed and free. */
int ct_descriptors_check(const struct ct_peer *self,
                         const struct ct_backend_setup *setup, struct ctrun_error *err);
