/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/counters.h"

void counters_add_failure(struct counters *counters, uint8_t cause)
{
    if (cause <= CT_CAUSE_LAST)
        counters->failures[cause]++;
}

void counters_set_lag(struct counters *counters, uint64_t lag_ms)
{
    counters->lag_ms = lag_ms;
    if (lag_ms > counters->lag_max_ms)
        counters->lag_max_ms = lag_ms;
}
