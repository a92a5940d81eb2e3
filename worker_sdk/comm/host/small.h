/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a collective whose data came with what the members agreed on, in shared memory as over
 * TCP: each member reduces all parts, in rank order, so all get the same bits. */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

/* parts: by member, a copy of its call->in; overwritten. Nothing happens in a barrier. */
void ct_small_finish(const struct ct_call *call, int size, int me, const void **parts);
