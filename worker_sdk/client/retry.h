/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses between attempts: short at first, then doubling, with a random part so that many ranks
 * spread out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ct_retry {
    uint64_t deadline_ms;
    uint64_t pause_ms;
    unsigned int tries; /* attempts begun */
};

void ct_retry_init(struct ct_retry *retry, uint64_t deadline_ms);
/* Sleeps; false when the pause would end after the deadline. */
bool ct_retry_pause(struct ct_retry *retry);
