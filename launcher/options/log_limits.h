/* SPDX-License-Identifier: Apache-2.0 */
/* --log-max-size and --log-keep: how big one log file may become, and how many old files stay;
 * --log-rate-limit: how many bytes a second of a worker's output the console shows. */
#pragma once

#include <stdint.h>

#include "launcher/options/option.h"
#include "worker_sdk/base/error.h"

/* *max_bytes is 0 without --log-max-size. 0, CTRUN_E_USAGE. */
int log_limits_parse(const struct options *options, uint64_t *max_bytes, int *keep,
                     struct ctrun_error *err);
/* *bytes_per_s is 0 when there is no limit. 0, CTRUN_E_USAGE. */
int log_limits_parse_rate(const struct options *options, uint64_t *bytes_per_s,
                          struct ctrun_error *err);
