/* SPDX-License-Identifier: Apache-2.0 */
/* The first causes of earlier rounds, the newest ones, so that the report of a run that was started
 * again several times has all of its failures: for the failure block and summary.json. */
#pragma once

#include <stdint.h>

#include "worker_sdk/wire/message.h"

enum {
    PAST_FAILURES_MAX = 16
};

struct past_failures {
    struct ct_stop *list[PAST_FAILURES_MAX]; /* the oldest first */
    uint32_t count;                          /* in the list */
    uint32_t left_out;                       /* older ones */
};

/* Keeps a STOP after which the workers start again because of a failure; ignores others. One for
 * which there is no memory is only counted. */
void past_failures_add(struct past_failures *past, const struct ct_stop *stop);
/* Drops the newest one if the verdict has it: no round has begun since. */
void past_failures_end(struct past_failures *past, const struct ct_verdict *verdict);
void past_failures_deinit(struct past_failures *past);
