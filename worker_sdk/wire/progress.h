/* SPDX-License-Identifier: Apache-2.0 */
/* How far a worker has come, and what it measures: memory of its own (a memfd) that its agent reads when it wants to know,
 * also after the worker's death. It comes as the descriptor with WORKER_PROGRESS. The reader believes
 * nothing of it. Both are of the same machine: native numbers. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "worker_sdk/wire/message.h"
#include "worker_sdk/wire/metric.h"

enum {
    CT_PROGRESS_MAGIC = 0x43545250 /* "CTRP" */
};

struct ct_progress_metric {
    char name[CT_METRIC_NAME_MAX]; /* written once, before it is counted */
    _Atomic uint64_t bits;         /* of a double */
};

/* What this process is working on. `sequence` is odd while it is written. */
struct ct_progress_samples {
    _Atomic uint32_t sequence; /* 0: nothing was reported */
    uint32_t count;            /* of `ids` */
    uint64_t total;            /* of the batch, with those that find no room here */
    uint64_t ids[CT_SAMPLES_MAX];
};

/* Whoever reads it reads what stands in front of `metrics` first. */
struct ct_progress {
    uint32_t magic;
    _Atomic int32_t waits;         /* threads that are in a collective, send or recv */
    _Atomic uint64_t step;         /* the last one reported */
    _Atomic uint64_t step_ms;      /* when, CLOCK_MONOTONIC; 0: none was */
    _Atomic uint64_t metric_count; /* of those below */
    struct ct_progress_metric metrics[CT_METRICS_MAX];
    struct ct_progress_samples samples;
};
