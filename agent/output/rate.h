/* SPDX-License-Identifier: Apache-2.0 */
/* A limit of bytes per second: a token bucket that holds the bytes of one second. A line that
 * has begun is finished on credit, so that no line is torn and a line longer than the bucket
 * passes, too. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    RATE_SHIFT_MAX = 40 /* 1 TiB a second: sums of thousandths of bytes fit */
};

struct rate {
    uint64_t bytes_per_s;
    int64_t tokens; /* thousandths of bytes; negative: on credit */
    uint64_t filled_ms;
};

/* At most 1 << RATE_SHIFT_MAX. The bucket is full. */
void rate_init(struct rate *rate, uint64_t bytes_per_s, uint64_t now_ms);
/* True: a line may begin now. */
bool rate_admits(struct rate *rate, uint64_t now_ms);
void rate_spend(struct rate *rate, uint64_t bytes);
