/* SPDX-License-Identifier: Apache-2.0 */
/* The progress and metrics of a worker: a memfd that its agent reads at any time, also after the
 * worker's death. The worker sends it as the descriptor with WORKER_PROGRESS. The reader must not
 * trust the data. Writer and reader are on the same machine: native numbers. */
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

/* The samples that this process works on. `sequence` is odd while they are written. */
struct ct_progress_samples {
    _Atomic uint32_t sequence; /* 0: nothing was reported */
    uint32_t count;            /* of `ids` */
    uint64_t total;            /* of the batch, also those without room in `ids` */
    uint64_t ids[CT_SAMPLES_MAX];
};

/* A reader reads the members before `metrics` first. */
struct ct_progress {
    uint32_t magic;
    _Atomic int32_t waits;         /* threads that are in a collective, send or recv */
    _Atomic uint64_t step;         /* the last one reported */
    _Atomic uint64_t step_ms;      /* when, as ct_now_ms(); 0: none was reported */
    _Atomic uint64_t metric_count; /* number of `metrics` */
    struct ct_progress_metric metrics[CT_METRICS_MAX];
    struct ct_progress_samples samples;
    _Atomic uint32_t polls;     /* 1: it has called ctrun_should_stop() */
    _Atomic uint64_t polled_ms; /* when last, as ct_now_ms(); 0: an older library */
    _Atomic uint64_t
        poll_gap_ms; /* the longest time between two calls, less with each later one; 0: there was one */
};
