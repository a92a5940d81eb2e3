/* SPDX-License-Identifier: Apache-2.0 */
/* How far the server's clock is ahead of ours, from the server's answers. The server reads its clock at some moment
 * between question and answer: so the error of the offset is half of that time, and what both clocks may have drifted
 * since. The best of the last samples counts. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    CLOCK_OFFSET_SAMPLES = 16,
    CLOCK_OFFSET_SAMPLES_MIN = 4, /* fewer samples may all be of a busy moment */
    CLOCK_OFFSET_DRIFT_PPM = 50   /* about what two free-running clocks drift */
};

struct clock_offset { /* zeroed: no sample yet */
    int count, next;
    struct clock_offset_sample {
        uint64_t at_ns; /* our clock */
        int64_t ahead_ns;
        uint64_t doubt_ns; /* at that time */
    } samples[CLOCK_OFFSET_SAMPLES];
};

/* The server's clock was server_ns at some moment between our asked_ns and answered_ns. */
void clock_offset_add(struct clock_offset *offset, uint64_t asked_ns,
                      uint64_t server_ns, uint64_t answered_ns);
/* False: there are too few samples. */
bool clock_offset_get(const struct clock_offset *offset, uint64_t now_ns,
                      int64_t *ahead_ns, uint64_t *doubt_ns);
