/* SPDX-License-Identifier: Apache-2.0 */
/* --log-max-size and --log-keep: how big one log file may become, and what stays of it. */
#ifndef LAUNCHER_LOG_LIMITS_H
#define LAUNCHER_LOG_LIMITS_H

#include <stdint.h>

#include "launcher/option.h"
#include "worker_sdk/base/error.h"

/* *max_bytes is 0 without --log-max-size. 0, CTRUN_E_USAGE. */
int log_limits_parse(const struct options *options, uint64_t *max_bytes, int *keep,
                     struct ctrun_error *err);

#endif
