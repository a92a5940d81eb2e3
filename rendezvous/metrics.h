/* SPDX-License-Identifier: Apache-2.0 */
/* What the server has done and is doing, as numbers for Prometheus: GET /metrics.
 *
 * Counters are kept where things happen (struct metrics, and the bytes of struct conn_pool);
 * what can be counted by looking is counted when somebody asks. */
#ifndef RENDEZVOUS_METRICS_H
#define RENDEZVOUS_METRICS_H

#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/message.h"

struct dispatch;

struct metrics {
    uint64_t rounds_started;
    uint64_t restarts; /* that cost budget */
    uint64_t failures[CT_CAUSE_LAST + 1];
    uint64_t lag_ms; /* how late the last timer of a round was */
    uint64_t lag_max_ms;
};

/* A FAILURE was heard, or a node lost; a cause that we do not know is not counted. */
void metrics_add_failure(struct metrics *metrics, uint8_t cause);
void metrics_set_lag(struct metrics *metrics, uint64_t lag_ms);
/* Appends the text format, version 0.0.4. 0, -ENOBUFS, -ENOMEM. */
int metrics_format(struct ct_buf *out, const struct dispatch *dispatch);

#endif
