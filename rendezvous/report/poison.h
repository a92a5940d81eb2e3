/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that were in work at more than one death: compares the samples of a root cause, as its
 * worker reported them (ctrun_batch()), with those of earlier root causes. The match is a fact;
 * whether the samples are the reason is not known. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    POISON_REPORTS_MAX =
        4, /* ranks of one round whose samples are kept until the root cause is known */
    POISON_DEATHS_MAX = 8, /* last root causes that are remembered */
    POISON_NAMED_MAX = 8,
};

struct poison {
    struct ct_samples reported[POISON_REPORTS_MAX]; /* count 0: free */
    struct ct_samples deaths[POISON_DEATHS_MAX];
    unsigned death_count; /* deaths so far */
    /* Of the last root cause. */
    uint64_t generation;
    int32_t rank;
    char text[320]; /* empty: no sample was seen before */
};

/* Adds the samples that a rank of this generation was working on. */
void poison_add(struct poison *poison, const struct ct_samples *samples);
/* Compares the samples of the root cause of a round with earlier ones. */
void poison_on_root(struct poison *poison, const struct ct_failure *root);
/* Adds the result to `failure`, if it is that root cause; another fact is removed if there is no
 * room. */
void poison_add_fact(const struct poison *poison, struct ct_failure *failure);
