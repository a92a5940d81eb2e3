/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the public functions (calls.c) and the group (work.c). */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

static inline bool ct_overlap(const void *a, size_t a_bytes, const void *b,
                              size_t b_bytes)
{
    return a && b && (uintptr_t)a < (uintptr_t)b + b_bytes &&
           (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Checks the call, and runs or starts it, as options say. Takes ownership of call->messages, also
 * on failure. */
int ct_group_call(struct ctrun_group *group, struct ct_call *call,
                  const struct ctrun_call_options *options, struct ctrun_error *err);

/* Moves the messages noted since ctrun_batch_begin() to `call`: true, or false if there was no
 * begin. */
bool ct_group_take_batch(struct ctrun_group *group, struct ct_call *call);
