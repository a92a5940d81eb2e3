/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines that another machine or user can cause at any rate: one line in ten seconds, with the
 * number of lines that were left out. A flood must not hide other lines, but its source must be in
 * the log.
 *
 *     ct_log_seldom(&server->refused, CTRUN_LOG_WARN, "refused %s: no token", address);
 *     warning: refused 10.1.2.3: no token (and 41 more like it before)
 * */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/log.h"

enum {
    CT_SELDOM_MS = 10000 /* between two lines of one kind */
};

/* One kind of line. Zeroed at first; one thread at a time. */
struct ct_seldom {
    uint64_t suppressed; /* since the last line */
    uint64_t printed_ms; /* when the last line was; 0: never */
};

enum {
    CT_OFTEN_LINES = 256 /* in CT_SELDOM_MS: legitimate clients may cause as many */
};

/* The same for lines that are all logged, unless there are too many. */
struct ct_often {
    uint64_t suppressed;
    uint64_t since_ms; /* begin of the counted period; 0: none */
    uint32_t count;
};

/* True when a line is due; then *more are those of before that had none. Pure. */
bool ct_often_is_due(struct ct_often *often, uint64_t now_ms, uint64_t *more);
/* As ct_log(), when a line is due. */
__attribute__((format(printf, 3, 4))) void
ct_log_often(struct ct_often *often, enum ctrun_log_level level, const char *fmt, ...);

/* True when a line is due; then *more are those of before that had none. Pure. */
bool ct_seldom_is_due(struct ct_seldom *seldom, uint64_t now_ms, uint64_t *more);
/* As ct_log(), when a line is due. */
__attribute__((format(printf, 3, 4))) void ct_log_seldom(struct ct_seldom *seldom,
                                                         enum ctrun_log_level level,
                                                         const char *fmt, ...);
