/* SPDX-License-Identifier: Apache-2.0 */
/* The times of a step, and the buckets of the first step. */
#pragma once

#include "worker_sdk/ddp/layout.h"

enum ct_time {
    CT_TIME_FORWARD,  /* forward begin to backward begin */
    CT_TIME_BACKWARD, /* backward begin to last gradient */
    CT_TIME_COMM, /* first bucket started to last one done; 0 where nobody waited for it */
    CT_TIME_OVERLAP, /* first bucket started to last gradient */
    CT_TIMES
};

struct ct_stats {
    uint64_t iterations; /* synchronising forwards begun */
    uint64_t forward_ns, backward_ns, grads_ns,
        comm_ns;                                /* when; 0: not yet in this step */
    uint64_t last[CT_TIMES], average[CT_TIMES]; /* over `samples` steps */
    uint64_t starts[CT_TIMES], ends[CT_TIMES];  /* when, in the last step; 0: not */
    uint64_t samples;
    size_t *ready; /* owned; parameters as they became ready in the running backward */
    size_t *ready_last; /* owned; in the one before */
    size_t ready_count, ready_last_count;
    char first_buckets[1024]; /* their bytes, "4799528, 16" */
};

/* 0, -ENOMEM. deinit accepts a zeroed one. */
int ct_stats_init(struct ct_stats *stats, const struct ct_layout *layout);
void ct_stats_deinit(struct ct_stats *stats);
void ct_stats_begin_backward(struct ct_stats *stats);
/* Slot s of the layout is ready. */
void ct_stats_on_ready(struct ct_stats *stats, const struct ct_layout *layout,
                       size_t s);
/* The step is over; is_waited: its reductions, too. */
void ct_stats_end_step(struct ct_stats *stats, bool is_waited);

/* The contents of the JSON besides the times. */
struct ct_stats_facts {
    int rank, world_size;
    const struct ctrun_param *params;
    size_t param_count;
    const struct ct_layout *layout;
    const struct ctrun_ddp_options *options;
    bool has_rebuilt, is_joining, is_device;
};
/* Writes one line of JSON with torch's names. Returns its length; -ENOSPC when that is not less
 * than size. */
int ct_stats_format(const struct ct_stats *stats, const struct ct_stats_facts *facts,
                    char *out, size_t size);
