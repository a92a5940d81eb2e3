/* SPDX-License-Identifier: Apache-2.0 */
/* From the public functions (calls.c) to the group (comm.c). */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

/* Checks the call, and does it or starts it, as options say. call->messages are taken, also on
 * failure. */
int ct_group_call(struct ctrun_group *group, struct ct_call *call,
                  const struct ctrun_call_options *options, struct ctrun_error *err);

/* Takes what it holds since ctrun_batch_begin(): true, or false where there was no begin. */
bool ct_group_take_batch(struct ctrun_group *group, struct ct_call *call);
