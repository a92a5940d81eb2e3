/* SPDX-License-Identifier: Apache-2.0 */
/* What the runs of this server have done, counted where it happens; metrics.h tells it. Pure. */
#pragma once

#include <stdint.h>

#include "worker_sdk/wire/message.h"

struct counters {
    uint64_t rounds_started;
    uint64_t restarts; /* that cost budget */
    uint64_t failures[CT_CAUSE_LAST + 1];
    uint64_t metrics_refused; /* values of ranks that found no room */
    uint64_t lag_ms;          /* how late the last timer of a round was */
    uint64_t lag_max_ms;
};

/* A FAILURE was heard, or a node lost; a cause that we do not know is not counted. */
void counters_add_failure(struct counters *counters, uint8_t cause);
void counters_set_lag(struct counters *counters, uint64_t lag_ms);
