/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses between tries: short at first, then doubling, uneven so that many ranks spread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ct_retry {
    uint64_t deadline_ms;
    uint64_t pause_ms;
    unsigned int tries; /* begun */
};

void ct_retry_init(struct ct_retry *retry, uint64_t deadline_ms);
/* Sleeps; false when the deadline would be over. */
bool ct_retry_pause(struct ct_retry *retry);
