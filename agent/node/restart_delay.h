/* SPDX-License-Identifier: Apache-2.0 */
/* --restart-delay: how long a node waits after a failure before it joins again. The delay doubles
 * with each failure in a row, and starts again at first_ms after progress: a step above all that
 * were reported before or, for a program that reports none, a round that lasted long enough. The
 * delay is random, between half and all of it: so jobs that failed together do not start together.
 * Pure. */
#pragma once

#include <stdint.h>

struct restart_delay_options {
    uint64_t first_ms;   /* 0: no delay */
    uint64_t max_ms;     /* at least first_ms */
    uint64_t settled_ms; /* a round that lasts this long without a step is progress */
};

struct restart_delay {
    uint32_t failures; /* in a row, without progress in between */
    int64_t best_step; /* highest step ever reported; -1: none */
};

/* After a round that failed: `step` is the last that was reported in it (-1: none), `lasted_ms` how long its
 * workers ran, `random` any number. Milliseconds. */
uint64_t restart_delay_next(struct restart_delay *delay,
                            const struct restart_delay_options *options, int64_t step,
                            uint64_t lasted_ms, uint64_t random);
