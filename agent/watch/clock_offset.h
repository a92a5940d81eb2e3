/* SPDX-License-Identifier: Apache-2.0 */
/* How far the server's clock is ahead of ours, from what it said when asked. Its answer was made at some moment between
 * question and answer: so the offset is known to half of what that took, and to what both clocks may have
 * drifted apart since. The best of the last samples counts. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    CLOCK_OFFSET_SAMPLES = 16,
    CLOCK_OFFSET_SAMPLES_MIN = 4, /* fewer may all be of a busy moment */
    CLOCK_OFFSET_DRIFT_PPM = 50   /* of two crystals that nobody disciplines, about */
};

struct clock_offset { /* zeroed: nothing is known */
    int count, next;
    struct clock_offset_sample {
        uint64_t at_ns; /* ours */
        int64_t ahead_ns;
        uint64_t doubt_ns; /* then */
    } samples[CLOCK_OFFSET_SAMPLES];
};

/* It said server_ns between our asked_ns and answered_ns. */
void clock_offset_add(struct clock_offset *offset, uint64_t asked_ns,
                      uint64_t server_ns, uint64_t answered_ns);
/* False: too little is known. */
bool clock_offset_get(const struct clock_offset *offset, uint64_t now_ns,
                      int64_t *ahead_ns, uint64_t *doubt_ns);
