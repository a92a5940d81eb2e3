/* SPDX-License-Identifier: Apache-2.0 */
/* How far a worker has come: memory of its own (a memfd) that its agent reads when it wants to know,
 * also after the worker's death. It comes as the descriptor with WORKER_PROGRESS. The reader believes
 * nothing of it. Both are of the same machine: native numbers. */
#ifndef CT_WIRE_PROGRESS_H
#define CT_WIRE_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_PROGRESS_MAGIC = 0x43545250 /* "CTRP" */
};

struct ct_progress {
    uint32_t magic;
    _Atomic int32_t waits;    /* threads that are in a collective, send or recv */
    _Atomic uint64_t step;    /* the last one told */
    _Atomic uint64_t step_ms; /* when, CLOCK_MONOTONIC */
};

#endif
