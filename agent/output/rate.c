/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/rate.h"

enum {
    IDLE_MAX_MS = 1000 * 1000 /* longer than any debt lasts, and no sum overflows */
};

void rate_init(struct rate *rate, uint64_t bytes_per_s, uint64_t now_ms)
{
    *rate = (struct rate){
        .bytes_per_s = bytes_per_s,
        .tokens = (int64_t)bytes_per_s * 1000,
        .filled_ms = now_ms,
    };
}

bool rate_admits(struct rate *rate, uint64_t now_ms)
{
    const uint64_t passed_ms = now_ms - rate->filled_ms;
    const int64_t full = (int64_t)rate->bytes_per_s * 1000;

    rate->tokens += (int64_t)(rate->bytes_per_s *
                              (passed_ms < IDLE_MAX_MS ? passed_ms : IDLE_MAX_MS));
    if (rate->tokens > full)
        rate->tokens = full;
    rate->filled_ms = now_ms;
    return rate->tokens > 0;
}

void rate_spend(struct rate *rate, uint64_t bytes)
{
    rate->tokens -= (int64_t)(bytes * 1000);
}
