/* SPDX-License-Identifier: Apache-2.0 */
/* The forward of a step, and helpers that all parts of a step call. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/sync.h"

void ct_ddp_name_bucket(const struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err)
{
    const struct ct_bucket_plan *plan = &ddp->layout.plan;
    char names[160] = ""; /* cut is fine */
    int used = 0;

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1] && used >= 0; i++)
        used = ct_append_item(
            names, sizeof names, ", ", "%s",
            ddp->params[ddp->layout.slots[plan->members[i]].param].name);
    ct_wrap(err, "ddp: bucket %zu (%s)", b, names);
}

/* *rc keeps the first failure. */
static void wait_for(struct ctrun_work **work, int *rc, struct ctrun_error *err)
{
    int one = *work ? ctrun_work_wait(*work, *rc == 0 ? err : NULL) : 0;

    *work = NULL;
    *rc = *rc < 0 ? *rc : one;
}

/* Waits for every running reduction; the first failure is the result. */
int ct_ddp_wait(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    struct ctrun_work **const works[] = {&ddp->used_work, &ddp->hooked_flag_work,
                                         &ddp->flag_work, &ddp->checks.found_work};
    int rc = 0;

    for (size_t b = 0; b < ddp->layout.bucket_count; b++) {
        const int before = rc;

        wait_for(&ddp->layout.buckets[b].work, &rc, err);
        wait_for(&ddp->layout.buckets[b].tail_work, &rc, err);
        if (before == 0 && rc < 0)
            ct_ddp_name_bucket(ddp, b, err);
    }
    for (size_t w = 0; w < sizeof works / sizeof *works; w++)
        wait_for(works[w], &rc, err);
    return rc;
}

void *ctrun_ddp_grad(struct ctrun_ddp *ddp, size_t p)
{
    if (!ddp || p >= ddp->param_count || ddp->slot_of[p] == CT_NO_SLOT)
        return NULL;
    return ddp->layout.slots[ddp->slot_of[p]].grad;
}

/* Lists the slots without gradient so far: "1 (b), 4 (fc.bias)". */
void ct_ddp_list_missing(const struct ctrun_ddp *ddp, char *text, size_t size)
{
    int used = 0;

    text[0] = '\0';
    for (size_t s = 0; s < ddp->layout.slot_count && used >= 0; s++) {
        const struct ct_slot *slot = &ddp->layout.slots[s];

        if (!slot->is_ready)
            used = ct_append_item(text, size, ", ", "%zu (%s)", slot->param,
                                  ddp->params[slot->param].name);
    }
}

int ct_ddp_check(const struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    if (!ddp)
        return ct_fail_null(err, "DDP object");
    if (ddp->state != DDP_BROKEN)
        return 0;
    return ct_fail(
        err, CTRUN_E_ABORTED,
        "ddp: an earlier call on this object failed, so it cannot be used any more: "
        "destroy it and close its group");
}

int ct_ddp_check_between(const struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    char missing[CT_DDP_REPORT_BYTES];
    const int rc = ct_ddp_check(ddp, err);

    if (rc < 0 || ddp->state != DDP_BACKWARD)
        return rc;
    ct_ddp_list_missing(ddp, missing, sizeof missing);
    return ct_fail(
        err, CTRUN_E_USAGE,
        "Expected to have finished reduction in the prior iteration before "
        "starting a new one. Its backward has begun, but not ended: call "
        "ctrun_ddp_backward_end(). Parameter indices which did not receive grad "
        "for rank %d: %s",
        ddp->rank, missing[0] ? missing : "none");
}

/* Sends rank 0's assignment to all ranks: members, number of buckets, sizes, as int32. */
static int share_plan(struct ctrun_ddp *ddp, struct ct_bucket_plan *plan,
                      struct ctrun_error *err)
{
    size_t n = ddp->layout.slot_count;
    int32_t *words = ct_zalloc_array(2 * n + 1, sizeof *words);
    struct ct_bucket_plan adopted;
    int rc;

    if (!words)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    for (size_t i = 0; i < n; i++)
        words[i] = (int32_t)plan->members[i];
    words[n] = (int32_t)plan->count;
    for (size_t b = 0; b < plan->count; b++)
        words[n + 1 + b] = (int32_t)(plan->starts[b + 1] - plan->starts[b]);
    rc = ctrun_broadcast(ddp->group, words, words, 2 * n + 1, CTRUN_I32, 0, NULL, err);
    if (rc == 0 && (rc = ct_bucket_plan_import(&adopted, words, n, words + n + 1,
                                               (size_t)words[n])) < 0)
        ct_fail(err, rc, "ddp: %s",
                rc == -ENOMEM ? "out of memory"
                              : "rank 0 sent an impossible bucket assignment");
    free(words);
    if (rc < 0)
        return rc;
    ct_bucket_plan_deinit(plan);
    *plan = adopted;
    return 0;
}

/* Returns how the last step ended, if backward_end() did not wait for it. */
int ct_ddp_look_back(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = ct_ddp_wait(ddp, err);

    if (rc < 0)
        ddp->state = DDP_BROKEN;
    if (rc == 0 && ddp->world_size == 1 && ddp->checks.has_found)
        rc = ct_ddp_ask_device(ddp, err); /* nobody raises a flag in a graph */
    if (rc < 0 || (rc = ct_ddp_check_flag(ddp, err)) < 0)
        return rc;
    return ct_ddp_check_clip(ddp, err);
}

static void reverse(size_t *order, size_t length)
{
    for (size_t i = 0; i < length / 2; i++) {
        const size_t first = order[i];

        order[i] = order[length - 1 - i];
        order[length - 1 - i] = first;
    }
}

static int rebuild(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const uint64_t limits[] = {ddp->options.first_bucket_bytes,
                               ddp->options.bucket_cap_bytes};
    struct ct_bucket_plan plan;
    int rc;

    if (ddp->options.small_last)
        reverse(ddp->order, ddp->order_length);
    rc = ct_layout_assign(&ddp->layout, &plan, ddp->order, limits, 2);
    if (rc == 0 && ddp->options.small_last && (rc = ct_bucket_plan_reverse(&plan)) < 0)
        ct_bucket_plan_deinit(&plan);
    if (rc == 0 && ddp->world_size > 1 && (rc = share_plan(ddp, &plan, err)) < 0) {
        ct_bucket_plan_deinit(&plan);
        return rc;
    }
    if (rc < 0)
        return ct_fail(err, rc, "ddp: out of memory");
    if ((rc = ct_layout_place(&ddp->layout, &plan, ddp->stream, err)) < 0)
        return rc;
    ddp->has_rebuilt = true;
    ct_info("ddp buckets rebuilt count=%zu", ddp->layout.bucket_count);
    return 0;
}

static int announce(struct ctrun_ddp *ddp, enum ct_turn turn, struct ctrun_error *err)
{
    int rc = ct_join_announce(&ddp->join, ddp->group, turn, err);

    if (rc == CTRUN_E_MISMATCH)
        ct_join_end(&ddp->join); /* for all ranks; each continues as it likes */
    else if (rc < 0)
        ddp->state = DDP_BROKEN;
    return rc;
}

/* The collective part of a forward, which ranks without data in a join call, too. */
int ct_ddp_begin_forward(struct ctrun_ddp *ddp, enum ct_turn turn,
                         struct ctrun_error *err)
{
    bool may_rebuild = !ct_ddp_is_final(ddp);
    int root = 0;
    int rc;

    if (ddp->is_capturing) { /* ctrun_ddp_capture_begin() has seen that there is nothing to do */
        ddp->is_sync = turn == CT_TURN_SYNC;
        ddp->state = DDP_FORWARD;
        return 0;
    }
    /* In a join this comes before the ranks announce what they do next: a rank without data has no
     * backward_begin() that could report a forgotten gradient, and all ranks report it together. */
    if ((may_rebuild || ddp->join.is_on) && (rc = ct_ddp_look_back(ddp, err)) < 0)
        return rc;
    if (ddp->join.is_on) {
        if ((rc = announce(ddp, turn, err)) < 0 || ddp->join.active == 0)
            return rc;
        root = ddp->join.last;
        turn = ddp->join.is_sync ? CT_TURN_SYNC : CT_TURN_LOCAL;
    }
    if (may_rebuild && (!ddp->options.find_unused || ddp->options.static_graph) &&
        ddp->order_length == ddp->layout.slot_count && (rc = rebuild(ddp, err)) < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    if (!ddp->was_local &&
        (rc = ct_ddp_sync(ddp->group, ddp->buffers, ddp->buffer_count, root,
                          ddp->stream, err)) < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    ddp->is_sync = turn == CT_TURN_SYNC;
    ddp->was_local = !ddp->is_sync;
    ddp->stats.forward_ns = ct_now_ns();
    ddp->state = DDP_FORWARD;
    return 0;
}

int ctrun_ddp_forward_begin(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = ct_ddp_check_between(ddp, err);

    if (rc < 0)
        return rc;
    rc = ct_ddp_begin_forward(ddp, ddp->is_no_sync ? CT_TURN_LOCAL : CT_TURN_SYNC, err);
    if (rc == 0)
        ddp->stats.iterations += ddp->is_sync && !ddp->is_capturing;
    return rc;
}

void ctrun_ddp_no_sync(struct ctrun_ddp *ddp, bool on)
{
    if (ddp)
        ddp->is_no_sync = on;
}
