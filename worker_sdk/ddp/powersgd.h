/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD: a gradient seen as a matrix M (n, m) travels as two thin ones, P (n, k) and Q (m, k).
 *
 *     M += what was left out before     P = M Q, added up over all ranks, columns made orthonormal
 *     Q = M' P, averaged over all ranks     the gradient becomes P Q', what it lacks is kept
 *
 * Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
 * optimization", NeurIPS 2019, as torch's powerSGD_hook does it. A gradient that is not worth
 * compressing travels whole beside P, so that a bucket takes two all-reduces. F32 only. On a
 * device its kernels do the same (powersgd_device.c), with the same bits, and the host does not
 * wait for them. */
#pragma once

#include "worker_sdk/ddp/layout.h"

struct ct_low_rank {
    size_t n, m;  /* first dimension, and all others together */
    size_t k;     /* columns; 0: the gradient travels whole */
    size_t p, q;  /* where its P, or all of it, and its Q stand */
    float *error; /* (n, m); NULL without error feedback; owned, but for a device */
};

struct ct_powersgd {
    struct ctrun_powersgd_options options;
    struct ctrun_group *group; /* kept */
    struct ct_low_rank *slots; /* owned; by slot; NULL: there is no PowerSGD */
    size_t slot_count;
    float *
        p; /* the group's: what travels first, bucket after bucket, the flag at the end */
    float *q;        /* the group's */
    float *errors;   /* the group's; of all slots; a device's only */
    uint32_t *words; /* the group's: CT_WORDS of them; a device's only */
    uint64_t step;   /* from 0; UINT64_MAX before the first */
    size_t bucket;   /* the last one that was started; they start in ascending order */
    bool is_placed;  /* p and q of the slots are set: buckets stay as they are */
    bool is_sum;     /* the gradients are divided already */
};

/* Checks options and takes memory of the group. Collective. deinit accepts a zeroed one. */
int ct_powersgd_init(struct ct_powersgd *powersgd, struct ctrun_group *group,
                     const struct ct_layout *layout, const struct ctrun_param *params,
                     const struct ctrun_powersgd_options *options,
                     struct ctrun_error *err);
void ct_powersgd_deinit(struct ct_powersgd *powersgd);
/* Called before bucket b, one of F32, starts. Returns whether it is compressed, or still averaged
 * plainly. op: CTRUN_AVG or CTRUN_SUM. */
bool ct_powersgd_begin(struct ct_powersgd *powersgd, const struct ct_layout *layout,
                       size_t b, enum ctrun_op op);
/* Starts bucket b, the flag included. */
int ct_powersgd_start(struct ct_powersgd *powersgd, struct ct_layout *layout, size_t b,
                      struct ctrun_error *err);
/* The rest of bucket b, after bucket->work, where bucket->is_hooked. Waits for the other ranks. */
int ct_powersgd_finish(struct ct_powersgd *powersgd, const struct ct_layout *layout,
                       size_t b, struct ctrun_error *err);

/* ---- On a device: powersgd_device.c ---- */

enum {
    CT_WORD_ALWAYS,    /* 1 */
    CT_WORD_BAD_ERROR, /* not 0: there is a NaN in what was left out */
    CT_WORD_BAD_Q,
    CT_WORDS
};

/* Memory for what only a device needs. */
int ct_powersgd_device_init(struct ct_powersgd *powersgd, struct ctrun_error *err);
/* Reduces bucket b: all of the steps above. */
int ct_powersgd_device_run(struct ct_powersgd *powersgd, struct ct_layout *layout,
                           size_t b, void *stream, struct ctrun_error *err);
/* Elements of a slot in P and in Q. */
size_t ct_low_rank_p(const struct ct_low_rank *shape);
size_t ct_low_rank_q(const struct ct_low_rank *shape);
/* Where the random numbers of slot s begin in this step. */
uint64_t ct_powersgd_seed(const struct ct_powersgd *powersgd, size_t s);
