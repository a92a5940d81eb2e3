/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that were in work at more than one death: what root causes of a run were working on, as their workers
 * told it (ctrun_batch()), held against what earlier ones were. That is a fact; whether the samples are the
 * reason nobody here knows. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    POISON_REPORTS_MAX =
        4, /* ranks of one round whose samples are kept until it is known who was first */
    POISON_DEATHS_MAX = 8, /* of which the last ones are remembered */
    POISON_NAMED_MAX = 8,
};

struct poison {
    struct ct_samples reported[POISON_REPORTS_MAX]; /* count 0: free */
    struct ct_samples deaths[POISON_DEATHS_MAX];
    unsigned death_count; /* all that there were */
    /* Of the last root cause. */
    uint64_t generation;
    int32_t rank;
    char text[320]; /* empty: nothing is so again */
};

/* A rank of this generation was working on these. */
void poison_add(struct poison *poison, const struct ct_samples *samples);
/* This is the root cause of its round. */
void poison_on_root(struct poison *poison, const struct ct_failure *root);
/* Adds what was found to `failure`, if it is that root cause; another fact makes room if it must. */
void poison_add_fact(const struct poison *poison, struct ct_failure *failure);
