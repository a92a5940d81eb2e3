/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: constant text first, then key=value; one line for each event.
 *
 *     ct_info("worker ended rank=%d pid=%d signal=%s", rank, pid, name);
 *
 * err: a user must act. warn: ctrun continues, but with a problem. info: the main steps of the job.
 * debug: all. The library prints nothing until its user sets a sink. Any thread may log. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* Sends lines of `level` and more urgent ones to sink (NULL: silence). */
void ct_log_set_sink(ctrun_log_fn *sink, void *context, enum ctrun_log_level level);
/* Parses Python's and our own level names (ERROR, warning, info, DEBUG, ...); -EINVAL. */
int ct_log_parse_level(const char *text, enum ctrun_log_level *out);

__attribute__((format(printf, 2, 3))) void ct_log(enum ctrun_log_level level,
                                                  const char *fmt, ...);
#define ct_err(...)   ct_log(CTRUN_LOG_ERR, __VA_ARGS__)
#define ct_warn(...)  ct_log(CTRUN_LOG_WARN, __VA_ARGS__)
#define ct_info(...)  ct_log(CTRUN_LOG_INFO, __VA_ARGS__)
#define ct_debug(...) ct_log(CTRUN_LOG_DEBUG, __VA_ARGS__)
