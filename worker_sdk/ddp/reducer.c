/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer: PyTorch's DistributedDataParallel without autograd.
 *
 *     IDLE ──forward_begin──> FORWARD ──backward_begin──> BACKWARD ──backward_end──> IDLE
 *       any ──a collective failed──> BROKEN: the group is dead, destroy both
 *
 * A gradient that is ready counts down its bucket; buckets whose gradients are all there are
 * launched in order, 0, 1, 2, ..., so that all ranks reduce the same things whatever the order
 * in which theirs were ready. The reductions run while backward goes on. After the first
 * backward that synchronised, the buckets are rebuilt once, in the order in which rank 0's
 * gradients were ready. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/ddp/sync.h"
#include "worker_sdk/ddp/verify.h"

enum ddp_state {
    DDP_IDLE,
    DDP_FORWARD,
    DDP_BACKWARD,
    DDP_BROKEN
};

static const size_t no_slot = SIZE_MAX;

struct ctrun_ddp {
    struct ctrun_group *group; /* kept */
    struct ctrun_ddp_options options;
    int rank;
    int world_size;
    struct ctrun_param *params; /* owned copy of the list */
    size_t param_count;
    size_t *slot_of; /* owned; by parameter, no_slot: it has no gradient */
    struct ct_layout layout;
    enum ddp_state state;
    bool is_no_sync;    /* asked for, from the next forward on */
    bool is_sync;       /* this step synchronises */
    bool has_seen_grad; /* in this backward */
    bool has_rebuilt;
    size_t next_bucket; /* the first that was not launched in this backward */
    size_t *order;      /* owned; slots as they became ready in this backward */
    size_t order_length;
    int32_t *used; /* owned; find_unused: by slot, who used it, then how many did */
    struct ctrun_work *used_work;
    bool *was_used; /* owned; find_unused: by slot, in the last step */
    uint64_t iterations;
    uint64_t backward_started_ns;
    uint64_t compute_ns;
    uint64_t comm_started_ns;
    uint64_t comm_ns;
};

/* ---- Construction ---- */

static int param_check(const struct ctrun_param *param, size_t p,
                       struct ctrun_error *err)
{
    size_t bytes = ctrun_dtype_size(param->dtype);

    if (!param->name)
        return ct_fail(err, -EINVAL, "ddp: params[%zu] has no name", p);
    if (bytes == 0)
        return ct_fail(err, -EINVAL, "ddp: params[%zu] '%s': no such dtype: %d", p,
                       param->name, (int)param->dtype);
    if (!param->no_grad && param->dtype < CTRUN_F16)
        return ct_fail(err, -EINVAL,
                       "ddp: params[%zu] '%s': only floating point can have gradients: "
                       "set no_grad",
                       p, param->name);
    if (param->dims < 0 || param->dims > CTRUN_MAX_DIMS)
        return ct_fail(err, -EINVAL, "ddp: params[%zu] '%s': %d dimensions", p,
                       param->name, param->dims);
    for (int i = 0; i < param->dims; i++)
        if (param->sizes[i] < 0 ||
            __builtin_mul_overflow(bytes, param->sizes[i], &bytes))
            return ct_fail(err, -EINVAL, "ddp: params[%zu] '%s': size %lld", p,
                           param->name, (long long)param->sizes[i]);
    if (bytes > 0 && !param->data)
        return ct_fail(err, -EINVAL, "ddp: params[%zu] '%s': no data", p, param->name);
    return 0;
}

static int arguments_check(const struct ctrun_param *params, size_t count,
                           const struct ctrun_ddp_options *options,
                           struct ctrun_error *err)
{
    bool any = false;
    int rc;

    if (options->size != sizeof *options)
        return ct_fail(err, -EINVAL,
                       "ddp: options.size is %zu: begin with CTRUN_DDP_OPTIONS_INIT",
                       options->size);
    for (size_t p = 0; p < count; p++) {
        if ((rc = param_check(&params[p], p, err)) < 0)
            return rc;
        any = any || !params[p].no_grad;
    }
    if (!any)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "DistributedDataParallel is not needed when a module doesn't have "
            "any parameter that requires a gradient.");
    return 0;
}

static int tables_create(struct ctrun_ddp *ddp, const struct ctrun_param *params,
                         size_t count)
{
    size_t slots;

    if (ct_layout_init(&ddp->layout, params, count) < 0)
        return -ENOMEM;
    slots = ddp->layout.slot_count;
    ddp->params = ct_zalloc_array(count, sizeof *ddp->params);
    ddp->slot_of = ct_zalloc_array(count, sizeof *ddp->slot_of);
    ddp->order = ct_zalloc_array(slots, sizeof *ddp->order);
    ddp->used = ct_zalloc_array(slots, sizeof *ddp->used);
    ddp->was_used = ct_zalloc_array(slots, sizeof *ddp->was_used);
    if (!ddp->params || !ddp->slot_of || !ddp->order || !ddp->used || !ddp->was_used)
        return -ENOMEM;
    memcpy(ddp->params, params, count * sizeof *params);
    ddp->param_count = count;
    for (size_t p = 0; p < count; p++)
        ddp->slot_of[p] = no_slot;
    for (size_t s = 0; s < slots; s++)
        ddp->slot_of[ddp->layout.slots[s].param] = s;
    return 0;
}

/* The buckets of the first step: one a dtype unless find_unused, the last layers in front. */
static int first_buckets(struct ctrun_ddp *ddp)
{
    const uint64_t limits[] = {ddp->options.first_bucket_bytes,
                               ddp->options.bucket_cap_bytes};
    const uint64_t unlimited = UINT64_MAX;
    struct ct_bucket_plan plan;
    int rc;

    if (ddp->options.find_unused)
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, limits, 2);
    else
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, &unlimited, 1);
    if (rc == 0 && (rc = ct_bucket_plan_reverse(&plan)) < 0)
        ct_bucket_plan_deinit(&plan);
    return rc < 0 ? rc : ct_layout_place(&ddp->layout, &plan);
}

static int build(struct ctrun_ddp *ddp, const struct ctrun_param *params, size_t count,
                 struct ctrun_error *err)
{
    void *arena;
    int rc;

    if (tables_create(ddp, params, count) < 0)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    if (!ddp->options.no_init_sync &&
        (rc = ct_ddp_sync(ddp->group, params, count, err)) < 0)
        return rc;
    rc = ctrun_group_alloc(ddp->group, ct_layout_arena_bytes(&ddp->layout), &arena,
                           err);
    if (rc < 0)
        return rc;
    ddp->layout.arena = arena;
    return first_buckets(ddp) < 0 ? ct_fail(err, -ENOMEM, "ddp: out of memory") : 0;
}

int ctrun_ddp_create(struct ctrun_ddp **out, struct ctrun_group *group,
                     const struct ctrun_param *params, size_t count,
                     const struct ctrun_ddp_options *options, struct ctrun_error *err)
{
    static const struct ctrun_ddp_options defaults = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_ddp *ddp;
    int rc;

    *out = NULL;
    if (!options)
        options = &defaults;
    rc = arguments_check(params, count, options, err);
    if (!options->no_init_sync) /* a rank that refuses takes the others along */
        rc = ct_ddp_verify(group, params, count, options, rc, err);
    if (rc < 0)
        return rc;
    if (!(ddp = ct_zalloc(sizeof *ddp)))
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    ddp->group = group;
    ddp->options = *options;
    ddp->rank = ctrun_group_rank(group);
    ddp->world_size = ctrun_group_size(group);
    if ((rc = build(ddp, params, count, err)) < 0) {
        ctrun_ddp_destroy(ddp);
        return rc;
    }
    *out = ddp;
    return 0;
}

/* Takes back every running reduction; the first failure is the result. */
static int wait_for_all(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t b = 0; b < ddp->layout.bucket_count; b++) {
        struct ctrun_work *work = ddp->layout.buckets[b].work;
        int one = work ? ctrun_work_wait(work, rc == 0 ? err : NULL) : 0;

        ddp->layout.buckets[b].work = NULL;
        rc = rc < 0 ? rc : one;
    }
    if (ddp->used_work) {
        int one = ctrun_work_wait(ddp->used_work, rc == 0 ? err : NULL);

        ddp->used_work = NULL;
        rc = rc < 0 ? rc : one;
    }
    return rc;
}

void ctrun_ddp_destroy(struct ctrun_ddp *ddp)
{
    if (!ddp)
        return;
    (void)wait_for_all(ddp,
                       NULL); /* they write into our memory; nobody asks how they end */
    ct_layout_deinit(&ddp->layout);
    free(ddp->params);
    free(ddp->slot_of);
    free(ddp->order);
    free(ddp->used);
    free(ddp->was_used);
    free(ddp);
}

void *ctrun_ddp_grad(struct ctrun_ddp *ddp, size_t p)
{
    if (p >= ddp->param_count || ddp->slot_of[p] == no_slot)
        return NULL;
    return ddp->layout.slots[ddp->slot_of[p]].grad;
}

/* ---- Forward ---- */

/* The slots without gradient so far: "1 (b), 4 (fc.bias)". */
static void list_missing(const struct ctrun_ddp *ddp, char *text, size_t size)
{
    int used = 0;

    text[0] = '\0';
    for (size_t s = 0; s < ddp->layout.slot_count && used >= 0; s++) {
        const struct ct_slot *slot = &ddp->layout.slots[s];
        int more;

        if (slot->is_ready)
            continue;
        more = ct_format(text + used, size - (size_t)used, "%s%zu (%s)",
                         used ? ", " : "", slot->param, ddp->params[slot->param].name);
        used = more < 0 ? more : used + more;
    }
}

static int fail_unfinished(const struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    char missing[CT_DDP_REPORT_BYTES];

    list_missing(ddp, missing, sizeof missing);
    return ct_fail(
        err, CTRUN_E_USAGE,
        "Expected to have finished reduction in the prior iteration before "
        "starting a new one. Its backward has begun, but not ended: call "
        "ctrun_ddp_backward_end(). Parameter indices which did not receive grad "
        "for rank %d: %s",
        ddp->rank, missing);
}

static int fail_broken(struct ctrun_error *err)
{
    return ct_fail(
        err, CTRUN_E_ABORTED,
        "ddp: a reduction failed before: destroy this object and close its group");
}

/* Rank 0's assignment for everyone: members, number of buckets, sizes, as int32. */
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
    rc = ctrun_broadcast(ddp->group, words, 2 * n + 1, CTRUN_I32, 0, err);
    if (rc == 0 && (rc = ct_bucket_plan_import(&adopted, words, n, words + n + 1,
                                               (size_t)words[n])) < 0)
        ct_fail(err, rc, "ddp: rank 0 sent an impossible bucket assignment");
    free(words);
    if (rc < 0)
        return rc;
    ct_bucket_plan_deinit(plan);
    *plan = adopted;
    return 0;
}

static int rebuild(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const uint64_t limits[] = {ddp->options.first_bucket_bytes,
                               ddp->options.bucket_cap_bytes};
    struct ct_bucket_plan plan;
    int rc = ct_layout_assign(&ddp->layout, &plan, ddp->order, limits, 2);

    if (rc == 0 && ddp->world_size > 1 && (rc = share_plan(ddp, &plan, err)) < 0) {
        ct_bucket_plan_deinit(&plan);
        return rc;
    }
    if (rc < 0 || ct_layout_place(&ddp->layout, &plan) < 0)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    ddp->has_rebuilt = true;
    ct_info("ddp buckets rebuilt count=%zu", ddp->layout.bucket_count);
    return 0;
}

int ctrun_ddp_forward_begin(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (!ddp->has_rebuilt && !ddp->options.find_unused &&
        ddp->order_length == ddp->layout.slot_count && (rc = rebuild(ddp, err)) < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    ddp->is_sync = !ddp->is_no_sync;
    ddp->iterations += ddp->is_sync;
    ddp->state = DDP_FORWARD;
    return 0;
}

void ctrun_ddp_no_sync(struct ctrun_ddp *ddp, bool on)
{
    ddp->is_no_sync = on;
}

/* ---- Backward ---- */

int ctrun_ddp_backward_begin(struct ctrun_ddp *ddp, const uint8_t *used,
                             struct ctrun_error *err)
{
    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (ddp->state != DDP_FORWARD)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "ddp: backward without forward: call ctrun_ddp_forward_begin() first");
    if (used && !ddp->options.find_unused)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: flags of used parameters need the option find_unused");
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        slot->is_ready = false;
        slot->is_unused = used && !used[slot->param];
    }
    for (size_t b = 0; b < ddp->layout.bucket_count; b++)
        ddp->layout.buckets[b].pending = ddp->layout.plan.starts[b + 1] -
                                         ddp->layout.plan.starts[b];
    ct_layout_raise_flag(&ddp->layout, false);
    ddp->next_bucket = 0;
    if (!ddp->has_rebuilt && ddp->is_sync)
        ddp->order_length = 0;
    ddp->has_seen_grad = false;
    ddp->comm_started_ns = 0;
    ddp->backward_started_ns = ct_now_ns();
    ddp->compute_ns = 0;
    ddp->state = DDP_BACKWARD;
    return 0;
}

/* A collective failed: takes back what runs, so that memory is ours again. */
static int break_down(struct ctrun_ddp *ddp, int rc)
{
    (void)wait_for_all(ddp, NULL); /* the first failure is known already */
    ddp->state = DDP_BROKEN;
    return rc;
}

/* Starts every bucket that is complete and whose turn it is, then the map of who used what. */
static int launch(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    enum ctrun_op op = ddp->options.divide_by_caller ? CTRUN_SUM : CTRUN_AVG;
    struct ct_layout *layout = &ddp->layout;
    int rc;

    while (ddp->next_bucket < layout->bucket_count &&
           layout->buckets[ddp->next_bucket].pending == 0) {
        struct ct_bucket *bucket = &layout->buckets[ddp->next_bucket];

        if (ddp->next_bucket++ == 0)
            ddp->comm_started_ns = ct_now_ns();
        if (ddp->world_size == 1 || bucket->elements == 0)
            continue; /* one rank's average is its gradient */
        rc = ctrun_all_reduce_start(ddp->group, bucket->data, bucket->elements,
                                    bucket->dtype, op, &bucket->work, err);
        if (rc < 0)
            return break_down(ddp, rc);
    }
    if (ddp->next_bucket < layout->bucket_count || !ddp->options.find_unused ||
        ddp->world_size == 1 || ddp->used_work)
        return 0;
    rc = ctrun_all_reduce_start(ddp->group, ddp->used, layout->slot_count, CTRUN_I32,
                                CTRUN_SUM, &ddp->used_work, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

static int mark_ready(struct ctrun_ddp *ddp, struct ct_slot *slot,
                      struct ctrun_error *err)
{
    slot->is_ready = true;
    if (!slot->is_present && slot->bytes > 0)
        memset(slot->grad, 0, slot->bytes);
    ddp->layout.buckets[slot->bucket].pending--;
    return launch(ddp, err);
}

/* Parameters without gradient in this step take part with what they hold, zero if nothing. Its
 * old value is kept: it comes back when no rank used the parameter. */
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
            memcpy(slot->kept, slot->grad, slot->bytes);
        }
        if ((rc = mark_ready(ddp, slot, err)) < 0)
            return rc;
    }
    return 0;
}

static int ready_check(const struct ctrun_ddp *ddp, size_t p, struct ctrun_error *err)
{
    if (p >= ddp->param_count || ddp->slot_of[p] == no_slot)
        return ct_fail(err, -EINVAL, "ddp: there is no parameter %zu with a gradient",
                       p);
    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
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
        "several passes, or one that was called unused got a gradient. "
        "Parameter at index %zu with name %s has been marked as ready twice.",
        p, ddp->params[p].name);
}

int ctrun_ddp_grad_ready(struct ctrun_ddp *ddp, size_t p, struct ctrun_error *err)
{
    struct ct_slot *slot;
    int rc;

    if ((rc = ready_check(ddp, p, err)) < 0)
        return rc;
    slot = &ddp->layout.slots[ddp->slot_of[p]];
    if (ddp->is_sync && (slot->is_ready || slot->is_unused))
        return fail_twice(ddp, p, err);
    if (ddp->options.find_unused)
        ddp->used[ddp->slot_of[p]] = 1;
    slot->is_present = true;
    if (!ddp->is_sync)
        return 0;
    ddp->compute_ns = ct_now_ns() - ddp->backward_started_ns;
    if (!ddp->has_seen_grad && (rc = mark_unused(ddp, err)) < 0)
        return rc;
    ddp->has_seen_grad = true;
    if (!ddp->has_rebuilt)
        ddp->order[ddp->order_length++] = ddp->slot_of[p];
    return mark_ready(ddp, slot, err);
}

/* Completes the buckets in spite of missing gradients, with the flag up: nobody hangs, and all
 * ranks learn that this step is wrong. Text gets what is missing here. */
static int complete(struct ctrun_ddp *ddp, char *missing, size_t size,
                    struct ctrun_error *err)
{
    int rc;

    list_missing(ddp, missing, size);
    if (!missing[0])
        return 0;
    ct_layout_raise_flag(&ddp->layout, true);
    for (size_t s = 0; s < ddp->layout.slot_count; s++)
        if (!ddp->layout.slots[s].is_ready &&
            (rc = mark_ready(ddp, &ddp->layout.slots[s], err)) < 0)
            return rc;
    return 0;
}

/* After the reductions: what nobody used is as it was, everything else is present. */
static void settle(struct ctrun_ddp *ddp)
{
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];
        bool is_used = !ddp->options.find_unused || ddp->used[s] != 0;

        if (is_used)
            slot->is_present = true;
        else if (slot->is_present && slot->is_unused && slot->kept)
            memcpy(slot->grad, slot->kept, slot->bytes);
        ddp->was_used[s] = is_used;
        ddp->used[s] = 0;
    }
}

int ctrun_ddp_backward_end(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    char missing[CT_DDP_REPORT_BYTES];
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state != DDP_BACKWARD)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the end of a backward that has not begun: call "
                       "ctrun_ddp_backward_begin() first");
    if (!ddp->is_sync) {
        ddp->state = DDP_IDLE;
        return 0;
    }
    if ((rc = mark_unused(ddp, err)) < 0 ||
        (rc = complete(ddp, missing, sizeof missing, err)) < 0)
        return rc;
    rc = wait_for_all(ddp, err);
    ddp->comm_ns = ct_now_ns() - ddp->comm_started_ns;
    if (rc < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    ddp->state = DDP_IDLE;
    settle(ddp);
    if (!ct_layout_flag_is_raised(&ddp->layout))
        return 0;
    ddp->order_length = 0; /* not the order of a good step */
    return ct_ddp_report_missing(ddp->group, missing, err);
}

/* ---- Between steps ---- */

void ctrun_ddp_zero_grad(struct ctrun_ddp *ddp)
{
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        if (slot->bytes > 0)
            memset(slot->grad, 0, slot->bytes);
        slot->is_present = false;
    }
}

bool ctrun_ddp_grad_is_used(const struct ctrun_ddp *ddp, size_t p)
{
    if (p >= ddp->param_count || ddp->slot_of[p] == no_slot)
        return false;
    return !ddp->options.find_unused || ddp->was_used[ddp->slot_of[p]];
}

void ctrun_ddp_get_stats(const struct ctrun_ddp *ddp, struct ctrun_ddp_stats *out)
{
    size_t room = sizeof out->bucket_bytes / sizeof *out->bucket_bytes;

    *out = (struct ctrun_ddp_stats){.iterations = ddp->iterations,
                                    .has_rebuilt_buckets = ddp->has_rebuilt,
                                    .bucket_count = ddp->layout.bucket_count,
                                    .backward_compute_ns = ddp->compute_ns,
                                    .backward_comm_ns = ddp->comm_ns};
    for (size_t b = 0; b < ddp->layout.bucket_count && b < room; b++)
        out->bucket_bytes[b] = ddp->layout.buckets[b].bytes;
}
