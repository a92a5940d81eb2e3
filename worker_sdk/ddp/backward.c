/* SPDX-License-Identifier: Apache-2.0 */
/* A step: gradients become ready, buckets are reduced, and the step ends. */
#include <errno.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/clip.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/slice.h"

/* The second half of the hooks, once all works are done. */
static int finish_hooks(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t b = 0; rc == 0 && b < ddp->layout.bucket_count; b++) {
        if (ddp->layout.buckets[b].is_hooked)
            rc = ct_hook_finish(&ddp->hook, &ddp->layout, b, stream, err);
        ddp->layout.buckets[b].is_hooked = false;
    }
    return rc;
}

/* A collective failed: waits for all running works, so that the memory is ours again. */
static int break_down(struct ctrun_ddp *ddp, int rc)
{
    (void)ct_ddp_wait(ddp, NULL); /* the first failure is known already */
    /* A recorded step has run nothing, so the reducer stays usable. */
    ddp->state = ddp->is_capturing ? DDP_IDLE : DDP_BROKEN;
    return rc;
}

static bool looks_on_device(const struct ctrun_ddp *ddp)
{
    return ddp->options.check_finite && ct_group_is_device(ddp->group);
}

int ctrun_ddp_backward_begin(struct ctrun_ddp *ddp, const uint8_t *used,
                             struct ctrun_error *err)
{
    int rc;

    if ((rc = ct_ddp_check_between(ddp, err)) < 0)
        return rc;
    if (ddp->state != DDP_FORWARD)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "ddp: backward without forward: call ctrun_ddp_forward_begin() first");
    if (used && (!ddp->options.find_unused || ddp->options.static_graph))
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: backward_begin: pass NULL for used: %s",
                       ddp->options.static_graph
                           ? "with static_graph the first step shows what is used"
                           : "the option find_unused is not set");
    if (!ddp->is_capturing && (rc = ct_ddp_look_back(ddp, err)) < 0)
        return rc;
    if (looks_on_device(ddp) &&
        (rc = ct_checks_begin(&ddp->checks, ddp->stream, err)) < 0)
        return break_down(ddp, rc);
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        slot->is_ready = false;
        slot->is_unused = used && !used[slot->param];
        if (!ddp->has_graph)
            slot->firings = 0;
        else
            slot->is_unused = slot->firings == 0;
        slot->left = slot->firings;
    }
    for (size_t b = 0; b < ddp->layout.bucket_count; b++) {
        ddp->layout.buckets[b].pending = ddp->layout.plan.starts[b + 1] -
                                         ddp->layout.plan.starts[b];
        ddp->layout.buckets[b].is_mixed = false;
    }
    ddp->has_flag_up = false;
    ddp->report = (struct ct_ddp_report){.code = 0};
    ddp->next_bucket = 0;
    if (!ddp->has_rebuilt && ddp->is_sync)
        ddp->order_length = 0;
    ddp->has_seen_grad = false;
    ct_stats_begin_backward(&ddp->stats);
    ct_group_count_pass(ddp->group);
    ddp->state = DDP_BACKWARD;
    return 0;
}

/* Reduces the flag by itself: beside a user's hook, or gradients in the caller's memory. */
static int launch_flag(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const struct ct_layout *layout = &ddp->layout;

    return ct_group_all_reduce_start(ddp->group, layout->flag, layout->flag, 1,
                                     layout->buckets[layout->bucket_count - 1].dtype,
                                     CTRUN_SUM, ddp->stream, &ddp->hooked_flag_work,
                                     err);
}

static int scale_on_device(struct ctrun_ddp *ddp, const struct ct_slot *slot, double by,
                           struct ctrun_error *err)
{
    const struct ct_device_args args = {
        .a = slot->grad, .n = slot->bytes / ctrun_dtype_size(slot->dtype), .by = by};

    return ct_group_compute(ddp->group,
                            slot->dtype == CTRUN_F16    ? CT_DEVICE_SCALE_F16
                            : slot->dtype == CTRUN_BF16 ? CT_DEVICE_SCALE_BF16
                            : slot->dtype == CTRUN_F64  ? CT_DEVICE_SCALE_F64
                                                        : CT_DEVICE_SCALE_F32,
                            &args, ddp->stream, err);
}

/* The bucket's gradients over the ranks that have data: divided before the sum, as torch does it. */
static int divide_by_active(struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err)
{
    const struct ct_bucket_plan *plan = &ddp->layout.plan;
    const double by = 1.0 / ddp->join.active;
    int rc = 0;

    for (size_t i = plan->starts[b]; rc == 0 && i < plan->starts[b + 1]; i++) {
        const struct ct_slot *slot = &ddp->layout.slots[plan->members[i]];

        if (ct_group_is_device(ddp->group))
            rc = scale_on_device(ddp, slot, by, err);
        else
            ct_scale(slot, by);
    }
    return rc;
}

static int launch_gradients(struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err)
{
    bool by_active = ddp->join.is_on && ddp->join.options.divide_by_active &&
                     !ddp->options.divide_by_caller && !ddp->hook.start;
    enum ctrun_op op = ddp->options.divide_by_caller || by_active ? CTRUN_SUM
                                                                  : CTRUN_AVG;
    struct ct_bucket *bucket = &ddp->layout.buckets[b];
    int rc = by_active ? divide_by_active(ddp, b, err) : 0;

    if (rc < 0 || bucket->elements == 0)
        return rc;
    if (ct_hook_takes(&ddp->hook, bucket))
        return ct_hook_start(&ddp->hook, &ddp->layout, b, op, ddp->stream, err);
    rc = ct_slice_reduce(&ddp->layout, bucket, bucket->data, bucket->dtype, op,
                         ddp->stream, err);
    if (rc < 0)
        ct_ddp_name_bucket(ddp, b, err);
    return rc;
}

static int launch_bucket(struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err)
{
    struct ct_layout *layout = &ddp->layout;
    bool is_last = b == layout->bucket_count - 1;
    int rc = 0;

    if (ddp->world_size == 1 && !ddp->hook.start)
        return 0; /* one rank's average is its gradient */
    if (is_last)
        rc = ct_layout_set_flag(layout, ddp->has_flag_up, ddp->stream, err);
    if (rc == 0 && is_last && looks_on_device(ddp))
        rc = ct_checks_raise_flag(&ddp->checks, layout, ddp->stream, err);
    if (rc == 0)
        rc = launch_gradients(ddp, b, err);
    if (rc == 0 && is_last && (ddp->hook.start || layout->is_callers))
        rc = launch_flag(ddp, err);
    return rc;
}

/* Whether the ranks tell each other in this step which parameters they used. */
static bool has_map(const struct ctrun_ddp *ddp)
{
    return ddp->options.static_graph ? !ddp->has_graph : ddp->options.find_unused;
}

/* Starts every complete bucket whose turn it is, then the map of used parameters. */
static int launch(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    struct ct_layout *layout = &ddp->layout;
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    int rc;

    while (ddp->next_bucket < layout->bucket_count &&
           layout->buckets[ddp->next_bucket].pending == 0) {
        if (ddp->next_bucket == 0)
            ddp->stats.comm_ns = ct_now_ns();
        rc = launch_bucket(ddp, ddp->next_bucket++, err);
        if (rc < 0)
            return break_down(ddp, rc);
    }
    if (ddp->next_bucket < layout->bucket_count || !has_map(ddp) ||
        ddp->world_size == 1 || ddp->used_work)
        return 0;
    options.work = &ddp->used_work;
    rc = ctrun_all_reduce(ddp->group, ddp->used, ddp->used, layout->slot_count,
                          CTRUN_I32, CTRUN_SUM, &options, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

int ct_ddp_mark_ready(struct ctrun_ddp *ddp, struct ct_slot *slot,
                      struct ctrun_error *err)
{
    int rc = 0;

    slot->is_ready = true;
    if (!slot->is_present) {
        rc = ct_group_clear(ddp->group, slot->grad, slot->bytes, ddp->stream, err);
        ddp->layout.buckets[slot->bucket].is_mixed = true;
    }
    if (rc < 0)
        return break_down(ddp, rc);
    ddp->layout.buckets[slot->bucket].pending--;
    return launch(ddp, err);
}

/* A parameter without gradient in this step takes part with the gradient that it holds, zero if
 * none. The old value is kept: it comes back when no rank used the parameter. */
static int mark_unused(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        if (!slot->is_unused || slot->is_ready)
            continue;
        if (slot->is_present && slot->bytes > 0) {
            if (!slot->kept && !(slot->kept = ct_zalloc(slot->bytes)))
                return ct_fail(err, break_down(ddp, -ENOMEM), "ddp: out of memory");
            if ((rc = ct_group_copy(ddp->group, slot->kept, slot->grad, slot->bytes,
                                    ddp->stream, err)) < 0)
                return break_down(ddp, rc);
        }
        if ((rc = ct_ddp_mark_ready(ddp, slot, err)) < 0)
            return rc;
    }
    return 0;
}

static int ready_check(const struct ctrun_ddp *ddp, size_t p, struct ctrun_error *err)
{
    const int rc = ct_ddp_check(ddp, err);

    if (rc < 0)
        return rc;
    if (p >= ddp->param_count || ddp->slot_of[p] == CT_NO_SLOT)
        return ct_fail(err, -EINVAL, "ddp: there is no parameter %zu with a gradient",
                       p);
    if (ddp->state != DDP_BACKWARD)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the gradient of parameter %zu (%s) is ready outside of a "
                       "backward: call ctrun_ddp_backward_begin() first",
                       p, ddp->params[p].name);
    return 0;
}

static int fail_twice(const struct ctrun_ddp *ddp, size_t p, struct ctrun_error *err)
{
    return ct_fail(
        err, CTRUN_E_USAGE,
        "Expected to mark a variable ready only once. A parameter was used in "
        "several passes, or one whose flag in used is 0 got a gradient. "
        "Parameter at index %zu with name %s has been marked as ready twice.",
        p, ddp->params[p].name);
}

/* From now on gradients come on `stream`: the group waits for the stream before now, and for this
 * one when a bucket is launched. */
static int take_stream(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    void *before = ddp->stream;
    int rc;

    if (!ct_group_is_device(ddp->group))
        return stream ? ct_fail(err, CTRUN_E_USAGE,
                                "ddp: a stream was passed, but the group is one of the "
                                "host: pass NULL")
                      : 0;
    ddp->stream = stream;
    if (!ddp->has_seen_grad || before == stream)
        return 0;
    for (size_t b = ddp->next_bucket; b < ddp->layout.bucket_count; b++)
        ddp->layout.buckets[b].is_mixed = true;
    rc = ct_group_clear(ddp->group, NULL, 0, before, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

static int fail_graph(const struct ctrun_ddp *ddp, size_t p, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_USAGE,
                   "Your training graph has changed in this iteration, e.g., one "
                   "parameter is unused in first iteration, but then got used in the "
                   "second iteration. this is not compatible with static_graph set to "
                   "True. It is the parameter at index %zu with name %s.",
                   p, ddp->params[p].name);
}

/* Static graph: 1 when the gradient is complete, 0 when it is not yet. The first step only counts. */
static int count_firing(struct ctrun_ddp *ddp, struct ct_slot *slot,
                        struct ctrun_error *err)
{
    if (!ddp->has_graph) {
        slot->firings++;
        return 0;
    }
    if (slot->left == 0)
        return fail_graph(ddp, slot->param, err);
    return --slot->left == 0;
}

/* A device remembers the slot; ct_ddp_check_flag() asks the device for it. */
static int look_at_gradient(struct ctrun_ddp *ddp, size_t s, struct ctrun_error *err)
{
    int rc = 0;

    if (!ddp->options.check_finite)
        return 0;
    if (!ct_group_is_device(ddp->group)) {
        if (!ct_is_finite(&ddp->layout.slots[s]))
            ct_ddp_note_not_finite(ddp, s);
        return 0;
    }
    rc = ct_checks_look_at(&ddp->checks, &ddp->layout, s, ddp->stream, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

int ctrun_ddp_grad_ready(struct ctrun_ddp *ddp, size_t p, void *stream,
                         struct ctrun_error *err)
{
    struct ct_slot *slot;
    int rc, is_complete = 1;

    if ((rc = ready_check(ddp, p, err)) < 0 || (rc = take_stream(ddp, stream, err)) < 0)
        return rc;
    slot = &ddp->layout.slots[ddp->slot_of[p]];
    if (ddp->is_sync && ddp->options.static_graph)
        is_complete = rc = count_firing(ddp, slot, err);
    else if (ddp->is_sync && (slot->is_ready || slot->is_unused))
        rc = fail_twice(ddp, p, err);
    if (rc < 0)
        return rc;
    if (has_map(ddp))
        ddp->used[ddp->slot_of[p]] = 1;
    slot->is_present = true;
    if (!ddp->is_sync)
        return 0;
    ct_stats_on_ready(&ddp->stats, &ddp->layout, ddp->slot_of[p]);
    if ((rc = look_at_gradient(ddp, ddp->slot_of[p], err)) < 0 ||
        (!ddp->has_seen_grad && (rc = mark_unused(ddp, err)) < 0))
        return rc;
    ddp->has_seen_grad = true; /* also of a part: the group waits for its stream */
    if (!is_complete)
        return 0;
    if (!ddp->has_rebuilt)
        ddp->order[ddp->order_length++] = ddp->slot_of[p];
    return ct_ddp_mark_ready(ddp, slot, err);
}

/* Static graph, first step: every gradient has come, and all buckets go. Later on: those that never
 * get one are the last in the order. */
static int finish_graph(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    for (size_t s = 0; s < ddp->layout.slot_count && !ddp->has_graph; s++)
        ddp->layout.slots[s].is_unused = ddp->layout.slots[s].firings == 0;
    if ((rc = mark_unused(ddp, err)) < 0)
        return rc;
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        if (!ddp->has_graph && !slot->is_ready &&
            (rc = ct_ddp_mark_ready(ddp, slot, err)) < 0)
            return rc;
        if (ddp->has_graph && !ddp->has_rebuilt && slot->is_unused)
            ddp->order[ddp->order_length++] = s;
    }
    return 0;
}

/* Completes the buckets in spite of missing gradients, with the flag up: no rank hangs, and all
 * ranks learn that this step is wrong. */
static int complete(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;
    char missing[CT_DDP_REPORT_BYTES];

    ct_ddp_list_missing(ddp, missing, sizeof missing);
    if (!missing[0])
        return 0;
    if (ddp->is_capturing) /* a graph cannot tell the others */
        return ct_fail(
            err, break_down(ddp, CTRUN_E_USAGE),
            "ddp: a captured step needs all gradients; these parameters got none: %s",
            missing);
    ct_ddp_raise_flag(ddp, CTRUN_E_USAGE, missing);
    for (size_t s = 0; s < ddp->layout.slot_count; s++)
        if (!ddp->layout.slots[s].is_ready &&
            (rc = ct_ddp_mark_ready(ddp, &ddp->layout.slots[s], err)) < 0)
            return rc;
    return 0;
}

/* After the reductions: restores the gradients that no rank used, and marks all others as present. */
static int settle(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];
        bool is_used = has_map(ddp)                ? ddp->used[s] != 0
                       : ddp->options.static_graph ? ddp->was_used[s]
                                                   : true;

        if (is_used)
            slot->is_present = true;
        else if (rc == 0 && slot->is_present && slot->is_unused && slot->kept)
            rc = ct_group_copy(ddp->group, slot->grad, slot->kept, slot->bytes,
                               ddp->stream, err);
        ddp->was_used[s] = is_used;
        ddp->used[s] = 0;
    }
    return rc;
}

/* Waits for the step on the host: its result is known when backward_end() returns. */
static int finish_step(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    const struct ct_layout *layout = &ddp->layout;
    int rc = ct_ddp_wait(ddp, err);

    ct_stats_end_step(&ddp->stats, true);
    if (rc == 0)
        rc = finish_hooks(ddp, stream, err);
    if (rc == 0)
        rc = settle(ddp, err);
    if (rc == 0) /* with one rank no collective lets the stream wait for the zeroes */
        rc = ct_group_hold_back(ddp->group, stream, err);
    if (rc == 0 && ddp->world_size > 1)
        rc = ct_group_copy(ddp->group, ddp->flag, layout->flag,
                           ct_layout_flag_bytes(layout), ddp->stream, err);
    else if (rc == 0 && looks_on_device(ddp)) /* nobody raised a flag */
        rc = ct_ddp_ask_device(ddp, err);
    if (rc < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    return ct_ddp_check_flag(ddp, err);
}

/* Lets `stream` wait for the step instead of the host. */
static int leave_step(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    struct ct_layout *layout = &ddp->layout;
    struct ctrun_work *flag_work;
    int rc = 0;

    for (size_t b = 0; rc == 0 && b < layout->bucket_count; b++) {
        struct ctrun_work *work = layout->buckets[b].work;

        if (!work || !ddp->hook.start) {
            rc = ct_slice_let_go(&layout->buckets[b], err);
            continue;
        }
        layout->buckets[b].work = NULL;
        rc = ct_work_wait_behind(work, stream, err); /* it may be another group's */
    }
    if (rc == 0)
        rc = finish_hooks(ddp, stream, err);
    if (rc == 0 && ddp->hooked_flag_work) {
        flag_work = ddp->hooked_flag_work;
        ddp->hooked_flag_work = NULL;
        rc = ct_work_let_go(flag_work, err);
    }
    if (rc == 0)
        rc = settle(ddp, err);
    ct_stats_end_step(&ddp->stats, false);
    if (rc == 0 && ddp->is_capturing)
        ddp->has_capture = true; /* ctrun_ddp_replayed() fetches */
    else if (rc == 0)
        rc = ct_group_fetch_start(ddp->group, ddp->flag, layout->flag,
                                  ct_layout_flag_bytes(layout), stream, &ddp->flag_work,
                                  err);
    /* A graph that is launched next overwrites the flag, and the number of the gradient that is not
     * finite. */
    if (rc == 0 && ddp->has_capture && !ddp->is_capturing && looks_on_device(ddp))
        rc = ct_checks_fetch(&ddp->checks, stream, err);
    else if (rc == 0)
        rc = ct_group_hold_back(ddp->group, stream, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

int ctrun_ddp_backward_end(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int rc = ct_ddp_check(ddp, err);

    if (rc < 0)
        return rc;
    if (ddp->state != DDP_BACKWARD)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the end of a backward that has not begun: call "
                       "ctrun_ddp_backward_begin() first");
    if ((rc = take_stream(ddp, stream, err)) < 0)
        return rc;
    if (!ddp->is_sync) {
        ddp->state = DDP_IDLE;
        /* The launch of a graph may come next, and marks what ct_checks_begin() cleared. */
        if (ddp->has_capture && looks_on_device(ddp))
            rc = ct_group_hold_back(ddp->group, stream, err);
        return rc < 0 ? break_down(ddp, rc) : 0;
    }
    rc = ddp->options.static_graph ? finish_graph(ddp, err) : mark_unused(ddp, err);
    if (rc < 0 || (rc = complete(ddp, err)) < 0)
        return rc;
    ddp->state = DDP_IDLE;
    if (ddp->is_capturing ||
        (!has_map(ddp) && ddp->world_size > 1 && ct_group_is_device(ddp->group)))
        return leave_step(ddp, stream, err);
    rc = finish_step(ddp, stream, err);
    ddp->has_graph = ddp->options.static_graph && (ddp->has_graph || rc == 0);
    return rc;
}
