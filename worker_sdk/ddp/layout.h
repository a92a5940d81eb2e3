/* SPDX-License-Identifier: Apache-2.0 */
/* Where gradients are in memory: one slot per parameter, in buckets that are reduced together,
 * each at a multiple of CT_LAYOUT_ALIGN, for fast kernels.
 *
 *     arena  | bucket 0: slot pad slot pad | bucket 1: slot pad slot flag |
 *
 * The arena is memory of the group, maybe of a device: only the group reads and writes it
 * (comm.h). With it no copy is needed to communicate; its size is enough for every assignment of
 * the same parameters, so that a rebuild needs no more memory. Where the caller has its own memory
 * for gradients (ctrun_param.grad) the slots are there and never move; a bucket is a run of slots
 * without a gap, and only where all ranks have the same runs: on one rank an allocator may put two
 * gradients side by side by chance. The arena then has only the flag, which is reduced by itself.
 *
 * After the slots of the last bucket comes one more element, the flag: a rank that missed a
 * gradient adds 1 to it, and so all ranks learn of that from the reduction that they do anyway. */
#pragma once

#include "worker_sdk/ddp/bucket.h"
#include "worker_sdk/include/ctrun.h"

enum {
    CT_LAYOUT_ALIGN = 256
}; /* of each slot, in bytes */

struct ct_slot {
    size_t param; /* index in the caller's list */
    size_t bytes;
    size_t bucket;
    enum ctrun_dtype dtype;
    uint8_t *grad; /* in the arena, or the caller's */
    size_t old;    /* its offset under the layout before, while a new one is placed */
    void *kept; /* owned; a copy to restore when nobody used the parameter, else NULL */
    bool is_present; /* holds a gradient since the last zero_grad */
    bool is_ready;   /* in this backward */
    bool
        is_unused; /* gets none in this backward, by the caller's word or the static graph */
    unsigned firings; /* static graph: how often it was ready in the first step */
    unsigned left;    /* of them, in this backward */
};

struct ct_bucket {
    uint8_t *data;   /* its first slot's */
    size_t at;       /* bytes of the buckets before it, pads included */
    size_t elements; /* to reduce, the flag included if it is there */
    size_t bytes;    /* of the slots */
    enum ctrun_dtype dtype;
    size_t pending;               /* gradients still missing in this backward */
    struct ctrun_work *work;      /* running reduction, or NULL */
    struct ctrun_work *tail_work; /* likewise, of what is behind the slices (slice.h) */
    bool is_hooked;               /* something is left to do after it */
    /* In this backward the group's stream zeroed a gradient of it, or has waited for one that came on another
     * stream than the last one. */
    bool is_mixed;
};

struct ct_layout {
    struct ct_slot
        *slots; /* owned; the parameters that have gradients, in their order */
    size_t slot_count;
    struct ct_bucket *buckets; /* owned; in the order in which they are launched */
    size_t bucket_count;
    struct ct_bucket_plan plan; /* members are slots */
    struct ctrun_group *group;  /* kept; set before the first placing, with arena */
    uint8_t *arena;             /* the group's */
    uint8_t *flag;              /* behind the last bucket's slots */
    bool is_callers;            /* the slots are the caller's memory */
    size_t ranks; /* among which a bucket is cut into slices; 0: it is not */
    size_t rank;
};

/* Makes the slots; no memory of the group yet. 0, -ENOMEM. */
int ct_layout_init(struct ct_layout *layout, const struct ctrun_param *params,
                   size_t count);
/* Accepts a zeroed one; no reduction may run. */
void ct_layout_deinit(struct ct_layout *layout);
/* Bytes of an arena that any plan fits in. */
size_t ct_layout_arena_bytes(const struct ct_layout *layout);
/* Assigns slots to buckets: order as for ct_bucket_assign(). */
int ct_layout_assign(const struct ct_layout *layout, struct ct_bucket_plan *out,
                     const size_t *order, const uint64_t *limits, size_t limit_count);
/* A digest of which gradients are neighbours in the caller's memory: ranks with equal digests can
 * have equal buckets. */
uint64_t ct_layout_neighbours(const struct ct_layout *layout);
/* Cuts the caller's memory into buckets, the last parameters first; one a gradient, unless `joins`.
 * 0, -ENOMEM. */
int ct_layout_cut(struct ct_layout *layout, const uint64_t *limits, size_t limit_count,
                  bool joins);
/* Lays the slots out by `plan` (taken, also on failure) and moves the gradients with them. Waits,
 * also for the work of `stream`. 0, or a negative code; with -ENOMEM the old layout stands. */
int ct_layout_place(struct ct_layout *layout, struct ct_bucket_plan *plan, void *stream,
                    struct ctrun_error *err);
/* Sets the flag, before the reduction of the last bucket. */
int ct_layout_set_flag(struct ct_layout *layout, bool is_up, void *stream,
                       struct ctrun_error *err);
/* Bytes of the flag, at most CT_FLAG_BYTES; when it is up, one of them is not 0. */
enum {
    CT_FLAG_BYTES = 8
};
size_t ct_layout_flag_bytes(const struct ct_layout *layout);
/* The bytes of the flag when it is up, the lowest first. */
uint64_t ct_layout_flag_up(const struct ct_layout *layout);
