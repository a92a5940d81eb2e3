/* SPDX-License-Identifier: Apache-2.0 */
/* How a bucket travels where its plain average would not do: as halves, as PowerSGD, or as the user's
 * hook does it.
 * On a device all of it is put on the group's stream at the start, but for the second half of a user's hook. */
#pragma once

#include "worker_sdk/ddp/powersgd.h"

struct ct_hook {
    struct ctrun_group *group; /* kept */
    ctrun_ddp_hook_fn *start;  /* the user's; NULL: none */
    ctrun_ddp_hook_done_fn *done;
    void *context;
    enum ctrun_dtype half; /* F16, BF16; else all travels in its own type */
    uint8_t *halves;       /* the group's; half the bytes of the layout's arena */
    struct ctrun_slice
        *slices; /* owned; of the bucket that a hook of the user's looks at */
    struct ct_powersgd powersgd;
};

/* Takes from options what concerns it, and memory of the group. Collective. params: those of the
 * layout. deinit accepts a zeroed one. */
int ct_hook_init(struct ct_hook *hook, struct ctrun_group *group,
                 const struct ct_layout *layout, const struct ctrun_param *params,
                 const struct ctrun_ddp_options *options, struct ctrun_error *err);
void ct_hook_deinit(struct ct_hook *hook);
/* Whether that bucket is its concern. */
bool ct_hook_takes(const struct ct_hook *hook, const struct ct_bucket *bucket);
/* Starts bucket b, whose gradients come on `stream`; what it leaves in bucket->work is waited for, and
 * bucket->is_hooked says whether ct_hook_finish() comes then. The user's hook does not get the flag, which
 * stays as it is. */
int ct_hook_start(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                  enum ctrun_op op, void *stream, struct ctrun_error *err);
/* After the work: the bucket holds the result, on a device in the order of `stream`. */
int ct_hook_finish(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                   void *stream, struct ctrun_error *err);
