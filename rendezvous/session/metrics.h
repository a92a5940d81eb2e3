/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and gauges of the server for Prometheus: GET /metrics.
 *
 * Events are counted where they happen (struct counters in run.h, and the bytes of struct
 * conn_pool); gauges are computed for each request. */
#pragma once

#include "worker_sdk/base/buf.h"

struct dispatch;

/* Appends the text format, version 0.0.4. 0, -ENOBUFS, -ENOMEM. */
int metrics_format(struct ct_buf *out, const struct dispatch *dispatch);
