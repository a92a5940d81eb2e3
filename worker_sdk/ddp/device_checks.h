/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of gradients and parameters on a device, which the host cannot read: whether gradients
 * are finite, their norm together, whether parameters equal those of the other ranks. All checks
 * are kernels in the order of the group's stream; a few bytes come back.
 *
 * Sums are made alike on every device, so that all ranks get the same bits. */
#pragma once

#include "worker_sdk/ddp/layout.h"

/* The results of a device. */
struct ct_device_found {
    double norm; /* of all gradients, by the last clipping */
    double by;   /* what they were multiplied by, if less than 1 */
    uint32_t
        bad_norm; /* 0, or the slot that is not finite plus 1: nothing was scaled */
    uint32_t pad;
    uint64_t
        bad_grad; /* 0, or the first slot plus 1 whose gradient was ready and not finite */
};

struct ct_device_checks {
    struct ctrun_group *group;     /* kept */
    uint8_t *memory;               /* the group's; NULL: it is one of the host */
    struct ct_device_found found;  /* of the last fetch, once found_work is done */
    struct ctrun_work *found_work; /* that was not looked at yet */
    bool
        has_found; /* bad_grad was fetched since the step began: the device has forgotten it */
    size_t slot_count, param_count;
};

/* Takes memory of the group. Collective. deinit accepts a zeroed one; none of its kernels may run
 * any more. */
int ct_checks_init(struct ct_device_checks *checks, struct ctrun_group *group,
                   size_t slot_count, size_t param_count, struct ctrun_error *err);
void ct_checks_deinit(struct ct_device_checks *checks);

/* Below, what is put on the group's stream comes behind what `stream` has by then; the host does
 * not wait, unless said so.
 *
 * Forgets which gradient was not finite. */
int ct_checks_begin(struct ct_device_checks *checks, void *stream,
                    struct ctrun_error *err);
/* Remembers slot s if its gradient is the first one that is not finite. */
int ct_checks_look_at(struct ct_device_checks *checks, const struct ct_layout *layout,
                      size_t s, void *stream, struct ctrun_error *err);
/* Raises the layout's flag if a gradient was not finite. */
int ct_checks_raise_flag(struct ct_device_checks *checks, struct ct_layout *layout,
                         void *stream, struct ctrun_error *err);
/* *slot: the remembered slot, or -1. Waits, unless it was fetched; `stream` waits, too. */
int ct_checks_find(struct ct_device_checks *checks, void *stream, long *slot,
                   struct ctrun_error *err);
/* ct_clip() of clip.h. */
int ct_checks_clip(struct ct_device_checks *checks, const struct ct_layout *layout,
                   double max_norm, void *stream, struct ctrun_error *err);
/* Fetches the results: `found` is valid once found_work is done. `stream` waits for that. */
int ct_checks_fetch(struct ct_device_checks *checks, void *stream,
                    struct ctrun_error *err);
/* A hash of each parameter, 0 for buffers. Waits. */
int ct_checks_digest(struct ct_device_checks *checks, const struct ctrun_param *params,
                     void *stream, uint64_t *out, struct ctrun_error *err);
