/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a worker held in its last minute: a ring of samples, one per MEMORY_EVERY_MS.
 * Resident memory of the process itself: pages that it shares with its children would count
 * twice. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    MEMORY_EVERY_MS = 5000,
    /* first sample after the start: the worker may not live for five seconds */
    MEMORY_FIRST_MS = 1000,
    MEMORY_SAMPLES = 12, /* a minute */
    MEMORY_TEXT_MAX = 160
};

struct memory_curve {
    uint64_t last_ms; /* of the last sample, monotonic */
    uint32_t count;   /* samples taken; the ring has the last of them */
    uint32_t kib[MEMORY_SAMPLES];
};

/* KiB; -1 when the process is gone, 0 when it is dead but not reaped. */
int64_t memory_read_kib(pid_t pid);

/* ---- Pure --------------------------------------------------------------------------------- */

void memory_add(struct memory_curve *curve, int64_t kib, uint64_t now_ms);
/* Number of samples in the ring, and the i-th of them, the oldest first. */
int memory_count(const struct memory_curve *curve);
uint32_t memory_get(const struct memory_curve *curve, int i);
/* "in the last 61 s: 0.4 -> 1.1 -> 3.9 GiB" into dst[MEMORY_TEXT_MAX]: seven values at most,
 * then peak_kib when it is more than all samples. Empty without samples. */
void memory_format(char *dst, const struct memory_curve *curve, uint64_t peak_kib,
                   uint64_t now_ms);
