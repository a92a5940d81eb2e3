/* SPDX-License-Identifier: Apache-2.0 */
/* What the server has done and is doing, as numbers for Prometheus: GET /metrics.
 *
 * Counters are kept where things happen (counters.h, and the bytes of struct conn_pool); what can
 * be counted by looking is counted when somebody asks. */
#pragma once

#include "worker_sdk/base/buf.h"

struct dispatch;

/* Appends the text format, version 0.0.4. 0, -ENOBUFS, -ENOMEM. */
int metrics_format(struct ct_buf *out, const struct dispatch *dispatch);
