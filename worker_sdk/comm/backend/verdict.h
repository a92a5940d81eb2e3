/* SPDX-License-Identifier: Apache-2.0 */
/* Why a group failed: written once by the first member that notices, read by all, across threads
 * and, in shared memory, across processes. Starts as zeros. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

enum {
    CT_VERDICT_TEXT_MAX = 496
};

struct ct_verdict {
    _Atomic uint32_t state; /* nothing, being written, complete */
    int32_t code;
    char text[CT_VERDICT_TEXT_MAX];
};

/* The first caller's code and text stay; true for that caller. Any thread. */
bool ct_verdict_set(struct ct_verdict *verdict, int code, const char *text);
/* 0 while the group is usable, else the code, with the text in err. */
int ct_verdict_get(const struct ct_verdict *verdict, struct ctrun_error *err);
