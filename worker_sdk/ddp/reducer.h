/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer: PyTorch's DistributedDataParallel without autograd.
 *
 *     IDLE ──forward_begin──> FORWARD ──backward_begin──> BACKWARD ──backward_end──> IDLE
 *       any ──a collective failed──> BROKEN: the group is dead, destroy both
 *
 * A gradient that is ready counts down its bucket; buckets whose gradients are all ready are
 * launched in order, 0, 1, 2, ..., so that all ranks reduce the same buckets in the same order,
 * whatever the order in which their gradients were ready. The reductions run while backward
 * continues.
 *
 * On a group of a device the host does not wait for the device in a step: the reductions run after
 * the kernels that make the gradients, and the caller's stream waits for the reductions. The next
 * backward_begin() looks how the step ended, the flag of layout.h included: meanwhile the device
 * has that step's forward to do. After the first backward that synchronised, the buckets are
 * rebuilt once, in the order in which rank 0's gradients were ready. */
#pragma once

#include "worker_sdk/ddp/device_checks.h"
#include "worker_sdk/ddp/hook.h"
#include "worker_sdk/ddp/join.h"
#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/ddp/stats.h"
#include "worker_sdk/ddp/verify.h"

enum ddp_state {
    DDP_IDLE,
    DDP_FORWARD,
    DDP_BACKWARD,
    DDP_BROKEN
};

#define CT_NO_SLOT SIZE_MAX

struct ctrun_ddp {
    struct ctrun_group *group; /* kept */
    struct ctrun_ddp_options options;
    struct ctrun_powersgd_options powersgd; /* options.powersgd, if it is given */
    int rank;
    int world_size;
    struct ctrun_param *params; /* owned copy of the list */
    size_t param_count;
    size_t *slot_of; /* owned; by parameter, CT_NO_SLOT: it has no gradient */
    struct ctrun_param *buffers; /* owned; those of params that forward sends round */
    size_t buffer_count;
    struct ct_layout layout;
    struct ct_hook hook;
    struct ct_device_checks checks; /* of a device */
    struct ct_join join;
    enum ddp_state state;
    bool is_no_sync;    /* asked for, from the next forward on */
    bool is_sync;       /* this step synchronises */
    bool was_local;     /* the forward before did not */
    bool has_seen_grad; /* in this backward */
    bool has_rebuilt;
    bool has_graph; /* static graph: the first step has shown it */
    /* A step is being recorded into a CUDA graph (capture.c): none of its work runs, so nothing
     * can be waited for. */
    bool is_capturing;
    bool has_capture;   /* one was recorded to its end */
    bool has_clip;      /* with a clipping */
    size_t next_bucket; /* the first that was not launched in this backward */
    size_t *order;      /* owned; slots as they became ready in this backward */
    size_t order_length;
    int32_t *used; /* owned; find_unused: by slot, who used it, then how many did */
    struct ctrun_work *used_work;
    struct ctrun_work
        *hooked_flag_work; /* the flag travels by itself beside a user's hook */
    /* The flag: whether ours is up, and what came of all of them. */
    bool has_flag_up;
    struct ct_ddp_report report; /* why it is up */
    uint8_t flag[CT_FLAG_BYTES];
    struct ctrun_work *flag_work; /* a device's step that was not looked at yet */
    void *stream; /* the last one that a gradient came on; at first the group's */
    bool *
        was_used; /* owned; find_unused: by slot, in the last step; static graph: in the first */
    double *squares; /* owned; by slot, while the host clips */
    struct ct_stats stats;
};

/* Whether the buckets stay as they are. */
static inline bool ct_ddp_is_final(const struct ctrun_ddp *ddp)
{
    return ddp->has_rebuilt || ddp->layout.is_callers || ddp->layout.ranks;
}
/* Waits for every running reduction; the first failure is the result. */
int ct_ddp_wait(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* Puts the bucket and its parameters in front of the error of its collective. */
void ct_ddp_name_bucket(const struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err);
/* Lists the slots without gradient so far: "1 (b), 4 (fc.bias)". */
void ct_ddp_list_missing(const struct ctrun_ddp *ddp, char *text, size_t size);
/* 0; or the error of all calls on no object, or after a backward that broke. */
int ct_ddp_check(const struct ctrun_ddp *ddp, struct ctrun_error *err);
/* 0; or the error of a call that may not come inside a backward, or after one that broke. */
int ct_ddp_check_between(const struct ctrun_ddp *ddp, struct ctrun_error *err);
/* After the reductions of a step: collective when something was wrong anywhere. */
int ct_ddp_check_flag(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* Raises the flag, by which all ranks learn that this step is wrong here, and notes why: the first
 * reason counts. */
void ct_ddp_raise_flag(struct ctrun_ddp *ddp, int code, const char *text);
/* Lets all ranks know, by the flag and the report, that the gradient of a slot is not finite here. */
void ct_ddp_note_not_finite(struct ctrun_ddp *ddp, size_t s);
/* Notes the gradient that was not finite on a device, if there is one. Waits. */
int ct_ddp_ask_device(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* CTRUN_E_DIVERGED of a clipping that met slot s. */
int ct_ddp_fail_clip(const struct ctrun_ddp *ddp, size_t s, struct ctrun_error *err);
/* The result of a clipping whose work is done by now: 0, or CTRUN_E_DIVERGED. */
int ct_ddp_check_clip(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* Returns how the last step ended, if backward_end() did not wait for it. */
int ct_ddp_look_back(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* The collective part of a forward, which ranks without data in a join call, too. */
int ct_ddp_begin_forward(struct ctrun_ddp *ddp, enum ct_turn turn,
                         struct ctrun_error *err);
/* The slot's gradient is complete, or zero where it holds none: starts the buckets that waited for
 * it. */
int ct_ddp_mark_ready(struct ctrun_ddp *ddp, struct ct_slot *slot,
                      struct ctrun_error *err);
