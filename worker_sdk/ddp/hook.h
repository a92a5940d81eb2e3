/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to reduce a bucket other than a plain average: in F16 or BF16, by PowerSGD, or by the
 * user's hook. On a device all work is put on the group's stream at the start, but for the second
 * half of a user's hook. */
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

/* Reads its part of the options, and takes memory of the group. Collective. params: those of the
 * layout. deinit accepts a zeroed one. */
int ct_hook_init(struct ct_hook *hook, struct ctrun_group *group,
                 const struct ct_layout *layout, const struct ctrun_param *params,
                 const struct ctrun_ddp_options *options, struct ctrun_error *err);
void ct_hook_deinit(struct ct_hook *hook);
/* Whether the hook reduces that bucket. */
bool ct_hook_takes(const struct ct_hook *hook, const struct ct_bucket *bucket);
/* Starts bucket b, whose gradients come on `stream`; the caller waits for bucket->work, and calls
 * ct_hook_finish() after it where bucket->is_hooked. The user's hook does not get the flag, which
 * stays as it is. */
int ct_hook_start(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                  enum ctrun_op op, void *stream, struct ctrun_error *err);
/* After the work: the bucket holds the result, on a device in the order of `stream`. */
int ct_hook_finish(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                   void *stream, struct ctrun_error *err);
