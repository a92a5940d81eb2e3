/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer: PyTorch's DistributedDataParallel without autograd.
 *
 *     IDLE ──forward_begin──> FORWARD ──backward_begin──> BACKWARD ──backward_end──> IDLE
 *       any ──a collective failed──> BROKEN: the group is dead, destroy both
 *
 * A gradient that is ready counts down its bucket; buckets whose gradients are all there are
 * launched in order, 0, 1, 2, ..., so that all ranks reduce the same things whatever the order
 * in which theirs were ready. The reductions run while backward goes on.
 *
 * On a group of a device nothing waits for the device in a step: the reductions come behind the
 * kernels that make the gradients, and the caller's stream behind the reductions. How a step ended,
 * the flag of layout.h included, is looked at when the next backward begins: the device has that
 * step's forward to do meanwhile. After the first
 * backward that synchronised, the buckets are rebuilt once, in the order in which rank 0's
 * gradients were ready. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/clip.h"
#include "worker_sdk/ddp/hook.h"
#include "worker_sdk/ddp/join.h"
#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/ddp/replicas.h"
#include "worker_sdk/ddp/stats.h"
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
    struct ctrun_powersgd_options powersgd; /* options.powersgd, if it is given */
    int rank;
    int world_size;
    struct ctrun_param *params; /* owned copy of the list */
    size_t param_count;
    size_t *slot_of;             /* owned; by parameter, no_slot: it has no gradient */
    struct ctrun_param *buffers; /* owned; those of params that forward sends round */
    size_t buffer_count;
    struct ct_layout layout;
    struct ct_hook hook;
    struct ct_join join;
    enum ddp_state state;
    bool is_no_sync;    /* asked for, from the next forward on */
    bool is_sync;       /* this step synchronises */
    bool was_local;     /* the forward before did not */
    bool has_seen_grad; /* in this backward */
    bool has_rebuilt;
    bool has_graph;     /* static graph: the first step has shown it */
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
    void *stream;                 /* the last one that a gradient came on */
    bool *
        was_used; /* owned; find_unused: by slot, in the last step; static graph: in the first */
    struct ct_stats stats;
};

/* ---- Construction ---- */

static int params_check(const struct ctrun_param *params, size_t count,
                        struct ctrun_error *err)
{
    bool any = false;
    int rc;

    for (size_t p = 0; p < count; p++) {
        if ((rc = ct_ddp_param_check(&params[p], p, err)) < 0)
            return (void)ct_wrap(err, "ddp"), rc;
        any = any || !params[p].no_grad;
    }
    if (!any)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "DistributedDataParallel is not needed when a module doesn't have "
            "any parameter that requires a gradient.");
    return 0;
}

static int tables_create(struct ctrun_ddp *ddp)
{
    size_t count = ddp->param_count;
    size_t slots;

    if (ct_layout_init(&ddp->layout, ddp->params, count) < 0)
        return -ENOMEM;
    slots = ddp->layout.slot_count;
    ddp->slot_of = ct_zalloc_array(count, sizeof *ddp->slot_of);
    ddp->order = ct_zalloc_array(slots, sizeof *ddp->order);
    ddp->used = ct_zalloc_array(slots, sizeof *ddp->used);
    ddp->was_used = ct_zalloc_array(slots, sizeof *ddp->was_used);
    ddp->buffers = ct_zalloc_array(count, sizeof *ddp->buffers);
    for (size_t p = 0; ddp->buffers && p < count; p++)
        if (ddp->params[p].is_buffer)
            ddp->buffers[ddp->buffer_count++] = ddp->params[p];
    if (!ddp->slot_of || !ddp->buffers || !ddp->order || !ddp->used || !ddp->was_used)
        return -ENOMEM;
    for (size_t p = 0; p < count; p++)
        ddp->slot_of[p] = no_slot;
    for (size_t s = 0; s < slots; s++)
        ddp->slot_of[ddp->layout.slots[s].param] = s;
    return 0;
}

/* The buckets of the first step: one a dtype unless find_unused, the last layers in front. */
static int first_buckets(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const uint64_t limits[] = {ddp->options.first_bucket_bytes,
                               ddp->options.bucket_cap_bytes};
    const uint64_t unlimited = UINT64_MAX;
    struct ct_bucket_plan plan;
    int rc;

    if (ddp->options.find_unused && !ddp->options.static_graph)
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, limits, 2);
    else
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, &unlimited, 1);
    if (rc == 0 && (rc = ct_bucket_plan_reverse(&plan)) < 0)
        ct_bucket_plan_deinit(&plan);
    return rc < 0 ? ct_fail(err, rc, "ddp: out of memory")
                  : ct_layout_place(&ddp->layout, &plan, NULL, err);
}

static int build(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    void *arena;
    int rc;

    if (tables_create(ddp) < 0)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    if (!ddp->options.no_init_sync &&
        (rc = ct_ddp_sync(ddp->group, ddp->params, ddp->param_count, 0, err)) < 0)
        return rc;
    rc = ctrun_group_alloc(ddp->group, ct_layout_arena_bytes(&ddp->layout), &arena,
                           err);
    if (rc < 0)
        return rc;
    ddp->layout.arena = arena;
    ddp->layout.group = ddp->group;
    if ((rc = ct_hook_init(&ddp->hook, ddp->group, &ddp->layout, ddp->params,
                           &ddp->options, err)) < 0)
        return rc;
    if ((rc = first_buckets(ddp, err)) < 0)
        return rc;
    return ct_stats_init(&ddp->stats, &ddp->layout) < 0
               ? ct_fail(err, -ENOMEM, "ddp: out of memory")
               : 0;
}

/* What the caller gave, in structs of our own size. */
static int take_arguments(struct ctrun_ddp *ddp, const struct ctrun_param *params,
                          size_t count, const struct ctrun_ddp_options *options,
                          struct ctrun_error *err)
{
    static const struct ctrun_param defaults = CTRUN_PARAM_INIT;
    void *list;
    int rc;

    ddp->options = (struct ctrun_ddp_options)CTRUN_DDP_OPTIONS_INIT;
    if (options && (rc = ct_sized_read(&ddp->options, sizeof ddp->options, options,
                                       "CTRUN_DDP_OPTIONS_INIT", err)) < 0)
        return (void)ct_wrap(err, "ddp: options"), rc;
    ddp->powersgd = (struct ctrun_powersgd_options)CTRUN_POWERSGD_OPTIONS_INIT;
    if (ddp->options.powersgd &&
        (rc = ct_sized_read(&ddp->powersgd, sizeof ddp->powersgd, ddp->options.powersgd,
                            "CTRUN_POWERSGD_OPTIONS_INIT", err)) < 0)
        return (void)ct_wrap(err, "ddp: powersgd"), rc;
    if (ddp->options.powersgd)
        ddp->options.powersgd = &ddp->powersgd;
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, params, count,
                                  "CTRUN_PARAM_INIT", err)) < 0)
        return (void)ct_wrap(err, "ddp: params"), rc;
    if (ddp->options.check_finite && ct_group_is_device(ddp->group)) {
        free(list);
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: check_finite needs a group of the host");
    }
    ddp->params = list;
    ddp->param_count = count;
    return params_check(ddp->params, count, err);
}

int ctrun_ddp_create(struct ctrun_ddp **out, struct ctrun_group *group,
                     const struct ctrun_param *params, size_t count,
                     const struct ctrun_ddp_options *options, struct ctrun_error *err)
{
    struct ctrun_ddp *ddp = ct_zalloc(sizeof *ddp);
    int rc;

    *out = NULL;
    if (!ddp)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    ddp->group = group;
    ddp->rank = ctrun_group_rank(group);
    ddp->world_size = ctrun_group_size(group);
    rc = take_arguments(ddp, params, count, options, err);
    if (!ddp->options.no_init_sync) /* a rank that refuses takes the others along */
        rc = ct_ddp_verify(group, ddp->params, ddp->param_count, &ddp->options, rc,
                           err);
    if (rc < 0 || (rc = build(ddp, err)) < 0) {
        ctrun_ddp_destroy(ddp);
        return rc;
    }
    *out = ddp;
    return 0;
}

/* Lets the last bucket tell all ranks that this step is wrong here, and why: the first reason counts. */
static void raise_flag(struct ctrun_ddp *ddp, int code, const char *text)
{
    ddp->has_flag_up = true;
    ddp->flag[0] = ddp->world_size == 1; /* there is no bucket that could tell */
    if (ddp->report.code)
        return;
    ddp->report.code = code;
    (void)ct_copy(ddp->report.text, sizeof ddp->report.text, text);
}

/* Takes back every running reduction; the first failure is the result. */
static int wait_for_all(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    struct ctrun_work **const works[] = {&ddp->used_work, &ddp->hooked_flag_work,
                                         &ddp->flag_work};
    int rc = 0;

    for (size_t b = 0; b < ddp->layout.bucket_count; b++) {
        struct ctrun_work *work = ddp->layout.buckets[b].work;
        int one = work ? ctrun_work_wait(work, rc == 0 ? err : NULL) : 0;

        ddp->layout.buckets[b].work = NULL;
        rc = rc < 0 ? rc : one;
    }
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
        int one = *works[w] ? ctrun_work_wait(*works[w], rc == 0 ? err : NULL) : 0;

        *works[w] = NULL;
        rc = rc < 0 ? rc : one;
    }
    return rc;
}

/* What hooks have left to do, once all works are done. */
static int finish_hooks(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t b = 0; rc == 0 && b < ddp->layout.bucket_count; b++) {
        if (ddp->layout.buckets[b].is_hooked)
            rc = ct_hook_finish(&ddp->hook, &ddp->layout, b, err);
        ddp->layout.buckets[b].is_hooked = false;
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
    ct_join_end(&ddp->join);
    ct_hook_deinit(&ddp->hook);
    ct_stats_deinit(&ddp->stats);
    free(ddp->params);
    free(ddp->slot_of);
    free(ddp->order);
    free(ddp->used);
    free(ddp->was_used);
    free(ddp->buffers);
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
    rc = ctrun_broadcast(ddp->group, words, words, 2 * n + 1, CTRUN_I32, 0, NULL, err);
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

static bool flag_came_up(const struct ctrun_ddp *ddp)
{
    static const uint8_t zero[CT_FLAG_BYTES] = {0};

    return memcmp(ddp->flag, zero, ct_layout_flag_bytes(&ddp->layout)) != 0;
}

/* After the reductions of a step: collective when something was wrong anywhere. */
static int check_flag(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    if (!flag_came_up(ddp))
        return 0;
    memset(ddp->flag, 0, sizeof ddp->flag);
    ddp->order_length = 0; /* not the order of a good step */
    return ct_ddp_tell(ddp->group, &ddp->report, err);
}

/* How the last step ended, where backward_end() did not wait for it. */
static int look_back(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = wait_for_all(ddp, err);

    if (rc < 0)
        ddp->state = DDP_BROKEN;
    return rc < 0 ? rc : check_flag(ddp, err);
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
        ct_join_end(&ddp->join); /* for all ranks; each goes on as it likes */
    else if (rc < 0)
        ddp->state = DDP_BROKEN;
    return rc;
}

/* What all ranks do together before a forward, those that have no data left as well. */
static int begin_forward(struct ctrun_ddp *ddp, enum ct_turn turn,
                         struct ctrun_error *err)
{
    int root = 0;
    int rc;

    if (ddp->join.is_on) {
        if ((rc = announce(ddp, turn, err)) < 0 || ddp->join.active == 0)
            return rc;
        root = ddp->join.last;
        turn = ddp->join.is_sync ? CT_TURN_SYNC : CT_TURN_LOCAL;
    }
    if (!ddp->has_rebuilt && (rc = look_back(ddp, err)) < 0)
        return rc;
    if (!ddp->has_rebuilt && (!ddp->options.find_unused || ddp->options.static_graph) &&
        ddp->order_length == ddp->layout.slot_count && (rc = rebuild(ddp, err)) < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    if (!ddp->was_local && (rc = ct_ddp_sync(ddp->group, ddp->buffers,
                                             ddp->buffer_count, root, err)) < 0) {
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
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    rc = begin_forward(ddp, ddp->is_no_sync ? CT_TURN_LOCAL : CT_TURN_SYNC, err);
    if (rc == 0)
        ddp->stats.iterations += ddp->is_sync;
    return rc;
}

void ctrun_ddp_no_sync(struct ctrun_ddp *ddp, bool on)
{
    ddp->is_no_sync = on;
}

/* ---- Backward ---- */

int ctrun_ddp_backward_begin(struct ctrun_ddp *ddp, const uint8_t *used,
                             struct ctrun_error *err)
{
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (ddp->state != DDP_FORWARD)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "ddp: backward without forward: call ctrun_ddp_forward_begin() first");
    if (used && (!ddp->options.find_unused || ddp->options.static_graph))
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: flags of used parameters need the option find_unused");
    if ((rc = look_back(ddp, err)) < 0)
        return rc;
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
    for (size_t b = 0; b < ddp->layout.bucket_count; b++)
        ddp->layout.buckets[b].pending = ddp->layout.plan.starts[b + 1] -
                                         ddp->layout.plan.starts[b];
    ddp->has_flag_up = false;
    ddp->report = (struct ct_ddp_report){.code = 0};
    ddp->next_bucket = 0;
    if (!ddp->has_rebuilt && ddp->is_sync)
        ddp->order_length = 0;
    ddp->has_seen_grad = false;
    ct_stats_begin_backward(&ddp->stats);
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

/* As a hook does it. Beside a user's the flag travels by itself. */
static int launch_hook(struct ctrun_ddp *ddp, size_t b, enum ctrun_op op,
                       struct ctrun_error *err)
{
    struct ct_layout *layout = &ddp->layout;
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    int rc = ct_hook_start(&ddp->hook, ddp->group, layout, b, op, err);

    layout->buckets[b].is_hooked = rc == 0;
    if (rc < 0 || !ddp->hook.start || b < layout->bucket_count - 1)
        return rc;
    options.work = &ddp->hooked_flag_work;
    return ctrun_all_reduce(ddp->group, layout->flag, layout->flag, 1,
                            layout->buckets[b].dtype, CTRUN_SUM, &options, err);
}

/* The bucket's gradients over the ranks that have data: divided before the sum, as torch does it. */
static void divide_by_active(const struct ctrun_ddp *ddp, size_t b)
{
    const struct ct_bucket_plan *plan = &ddp->layout.plan;

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++)
        ct_scale(&ddp->layout.slots[plan->members[i]], 1.0 / ddp->join.active);
}

static int launch_bucket(struct ctrun_ddp *ddp, size_t b, struct ctrun_error *err)
{
    bool by_active = ddp->join.is_on && ddp->join.options.divide_by_active &&
                     !ddp->options.divide_by_caller && !ddp->hook.start;
    enum ctrun_op op = ddp->options.divide_by_caller || by_active ? CTRUN_SUM
                                                                  : CTRUN_AVG;
    struct ct_layout *layout = &ddp->layout;
    struct ct_bucket *bucket = &layout->buckets[b];
    int rc = 0;

    if (bucket->elements == 0 || (ddp->world_size == 1 && !ddp->hook.start))
        return 0; /* one rank's average is its gradient */
    if (by_active)
        divide_by_active(ddp, b);
    if (b == layout->bucket_count - 1)
        rc = ct_layout_set_flag(layout, ddp->has_flag_up, ddp->stream, err);
    if (rc == 0 && ct_hook_takes(&ddp->hook, bucket))
        return launch_hook(ddp, b, op, err);
    return rc < 0 ? rc
                  : ct_group_all_reduce_start(ddp->group, bucket->data, bucket->data,
                                              bucket->elements, bucket->dtype, op,
                                              ddp->stream, &bucket->work, err);
}

/* Whether the ranks tell each other in this step who used what. */
static bool has_map(const struct ctrun_ddp *ddp)
{
    return ddp->options.static_graph ? !ddp->has_graph : ddp->options.find_unused;
}

/* Starts every bucket that is complete and whose turn it is, then the map of who used what. */
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

static int mark_ready(struct ctrun_ddp *ddp, struct ct_slot *slot,
                      struct ctrun_error *err)
{
    int rc = 0;

    slot->is_ready = true;
    if (!slot->is_present)
        rc = ct_group_clear(ddp->group, slot->grad, slot->bytes, ddp->stream, err);
    if (rc < 0)
        return break_down(ddp, rc);
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
            if ((rc = ct_group_copy(ddp->group, slot->kept, slot->grad, slot->bytes,
                                    ddp->stream, err)) < 0)
                return break_down(ddp, rc);
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

/* From now on gradients come on `stream`: the group waits for the one before, and for this one when a
 * bucket is launched. */
static int take_stream(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    void *before = ddp->stream;
    int rc;

    if (!ct_group_is_device(ddp->group))
        return stream ? ct_fail(err, CTRUN_E_USAGE,
                                "ddp: a stream, but the group is one of the host")
                      : 0;
    ddp->stream = stream;
    if (!ddp->has_seen_grad || before == stream)
        return 0;
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

static void tell_not_finite(struct ctrun_ddp *ddp, size_t p)
{
    char text[CT_DDP_REPORT_BYTES];

    (void)ct_format(text, sizeof text, "%zu '%.64s'", p, ddp->params[p].name);
    raise_flag(ddp, CTRUN_E_DIVERGED, text);
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
    if (ddp->options.check_finite && !ct_is_finite(slot))
        tell_not_finite(ddp, p);
    if (!is_complete)
        return 0;
    if (!ddp->has_seen_grad && (rc = mark_unused(ddp, err)) < 0)
        return rc;
    ddp->has_seen_grad = true;
    if (!ddp->has_rebuilt)
        ddp->order[ddp->order_length++] = ddp->slot_of[p];
    return mark_ready(ddp, slot, err);
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

        if (!ddp->has_graph && !slot->is_ready && (rc = mark_ready(ddp, slot, err)) < 0)
            return rc;
        if (ddp->has_graph && !ddp->has_rebuilt && slot->is_unused)
            ddp->order[ddp->order_length++] = s;
    }
    return 0;
}

/* Completes the buckets in spite of missing gradients, with the flag up: nobody hangs, and all
 * ranks learn that this step is wrong. */
static int complete(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;
    char missing[CT_DDP_REPORT_BYTES];

    list_missing(ddp, missing, sizeof missing);
    if (!missing[0])
        return 0;
    raise_flag(ddp, CTRUN_E_USAGE, missing);
    for (size_t s = 0; s < ddp->layout.slot_count; s++)
        if (!ddp->layout.slots[s].is_ready &&
            (rc = mark_ready(ddp, &ddp->layout.slots[s], err)) < 0)
            return rc;
    return 0;
}

/* After the reductions: what nobody used is as it was, everything else is present. */
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
static int finish_step(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const struct ct_layout *layout = &ddp->layout;
    int rc = wait_for_all(ddp, err);

    ct_stats_end_step(&ddp->stats, true);
    if (rc == 0)
        rc = finish_hooks(ddp, err);
    if (rc == 0)
        rc = settle(ddp, err);
    if (rc == 0 && ddp->world_size > 1)
        rc = ct_group_copy(ddp->group, ddp->flag, layout->flag,
                           ct_layout_flag_bytes(layout), ddp->stream, err);
    if (rc < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    return check_flag(ddp, err);
}

/* Lets `stream` wait for the step instead of the host. */
static int leave_step(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    struct ct_layout *layout = &ddp->layout;
    int rc = 0;

    for (size_t b = 0; rc == 0 && b < layout->bucket_count; b++) {
        struct ctrun_work *work = layout->buckets[b].work;

        layout->buckets[b].work = NULL;
        if (work)
            rc = ct_work_let_go(work, err);
    }
    if (rc == 0)
        rc = settle(ddp, err);
    ct_stats_end_step(&ddp->stats, false);
    if (rc == 0)
        rc = ct_group_hold_back(ddp->group, stream, err);
    if (rc == 0)
        rc = ct_group_fetch_start(ddp->group, ddp->flag, layout->flag,
                                  ct_layout_flag_bytes(layout), &ddp->flag_work, err);
    return rc < 0 ? break_down(ddp, rc) : 0;
}

int ctrun_ddp_backward_end(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state != DDP_BACKWARD)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the end of a backward that has not begun: call "
                       "ctrun_ddp_backward_begin() first");
    if ((rc = take_stream(ddp, stream, err)) < 0)
        return rc;
    if (!ddp->is_sync) {
        ddp->state = DDP_IDLE;
        return 0;
    }
    rc = ddp->options.static_graph ? finish_graph(ddp, err) : mark_unused(ddp, err);
    if (rc < 0 || (rc = complete(ddp, err)) < 0)
        return rc;
    ddp->state = DDP_IDLE;
    if (!has_map(ddp) && ddp->world_size > 1 && ct_group_is_device(ddp->group))
        return leave_step(ddp, stream, err);
    rc = finish_step(ddp, err);
    ddp->has_graph = ddp->options.static_graph && (ddp->has_graph || rc == 0);
    return rc;
}

/* ---- Uneven inputs ---- */

int ctrun_ddp_join_begin(struct ctrun_ddp *ddp,
                         const struct ctrun_join_options *options,
                         struct ctrun_error *err)
{
    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (ddp->join.is_on)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: join: call ctrun_ddp_join_end() for the one before");
    if (ct_group_is_device(ddp->group) || ddp->options.static_graph)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: join needs a group of the host, and no static_graph");
    return ct_join_begin(&ddp->join, ddp->group, options, err);
}

/* A step of those who have data, with zeros. */
static int shadow_step(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    if (!ddp->is_sync) {
        ddp->state = DDP_IDLE;
        return 0;
    }
    for (size_t s = 0; s < ddp->layout.slot_count; s++) {
        ddp->layout.slots[s].is_present = false; /* also what no_sync left here */
        ddp->used[s] = 0;
    }
    rc = ctrun_ddp_backward_begin(ddp, NULL, err);
    for (size_t s = 0; rc == 0 && s < ddp->layout.slot_count; s++) {
        if (!ddp->has_rebuilt)
            ddp->order[ddp->order_length++] = s;
        rc = mark_ready(ddp, &ddp->layout.slots[s], err);
    }
    if (rc == 0)
        rc = ctrun_ddp_backward_end(ddp, NULL, err);
    /* Who forgot a gradient may go on: so do we. */
    if (rc == CTRUN_E_USAGE)
        return 0;
    if (rc == 0 && ddp->join.options.on_step)
        rc = ddp->join.options.on_step(ddp->join.options.context, err);
    return rc < 0 ? rc : 0;
}

int ctrun_ddp_join_end(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (!ddp->join.is_on)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the end of a join that has not begun, or that "
                       "forward_begin has ended: call ctrun_ddp_join_begin() first");
    while ((rc = begin_forward(ddp, CT_TURN_JOINED, err)) == 0 && ddp->join.active > 0)
        if ((rc = shadow_step(ddp, err)) < 0)
            break;
    if (rc == 0 && (rc = ct_ddp_sync(ddp->group, ddp->params, ddp->param_count,
                                     ddp->join.last, err)) < 0)
        ddp->state = DDP_BROKEN;
    ct_join_end(&ddp->join);
    return rc;
}

/* ---- Between steps ---- */

int ctrun_ddp_zero_grad(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t s = 0; rc == 0 && s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        rc = ct_group_clear(ddp->group, slot->grad, slot->bytes, stream, err);
        slot->is_present = false;
    }
    return rc < 0 ? rc : ct_group_hold_back(ddp->group, stream, err);
}

int ctrun_ddp_clip_grad_norm(struct ctrun_ddp *ddp, double max_norm, double *norm,
                             struct ctrun_error *err)
{
    double found;
    long bad;

    if (!(max_norm > 0))
        return ct_fail(err, -EINVAL, "ddp: clip to a norm of %g: more than 0",
                       max_norm);
    if (ct_group_is_device(ddp->group))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: clipping needs a group of the host");
    if (ddp->state != DDP_IDLE)
        return ct_fail(err, CTRUN_E_USAGE, "ddp: clipping comes after backward_end");
    if ((bad = ct_clip(&ddp->layout, max_norm, &found)) >= 0) {
        size_t p = ddp->layout.slots[bad].param;
        return ct_fail(err, CTRUN_E_DIVERGED,
                       "ddp: the gradient of parameter %zu '%s' is not finite", p,
                       ddp->params[p].name);
    }
    if (norm)
        *norm = found;
    return 0;
}

int ctrun_ddp_check_replicas(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    if (ddp->state == DDP_BROKEN)
        return fail_broken(err);
    if (ddp->state == DDP_BACKWARD)
        return fail_unfinished(ddp, err);
    if (ct_group_is_device(ddp->group))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: comparing replicas needs a group of the host");
    rc = ct_ddp_compare_replicas(ddp->group, ddp->params, ddp->param_count, err);
    if (rc < 0 && rc != CTRUN_E_MISMATCH && rc != -ENOMEM)
        ddp->state = DDP_BROKEN;
    return rc;
}

bool ctrun_ddp_grad_is_used(const struct ctrun_ddp *ddp, size_t p)
{
    if (p >= ddp->param_count || ddp->slot_of[p] == no_slot)
        return false;
    return !(ddp->options.find_unused || ddp->options.static_graph) ||
           ddp->was_used[ddp->slot_of[p]];
}

int ctrun_ddp_get_stats(const struct ctrun_ddp *ddp, struct ctrun_ddp_stats *out,
                        struct ctrun_error *err)
{
    struct ctrun_ddp_stats stats = {
        .iterations = ddp->stats.iterations,
        .has_rebuilt_buckets = ddp->has_rebuilt,
        .bucket_count = ddp->layout.bucket_count,
        .backward_compute_ns = ddp->stats.last[CT_TIME_BACKWARD],
        .backward_comm_ns = ddp->stats.last[CT_TIME_COMM]};
    size_t room = sizeof stats.bucket_bytes / sizeof *stats.bucket_bytes;

    for (size_t b = 0; b < ddp->layout.bucket_count && b < room; b++)
        stats.bucket_bytes[b] = ddp->layout.buckets[b].bytes;
    return ct_sized_write(out, &stats, sizeof stats, "CTRUN_DDP_STATS_INIT", err);
}

int ctrun_ddp_stats_json(const struct ctrun_ddp *ddp, char *out, size_t size,
                         struct ctrun_error *err)
{
    const struct ct_stats_facts facts = {.rank = ddp->rank,
                                         .world_size = ddp->world_size,
                                         .params = ddp->params,
                                         .param_count = ddp->param_count,
                                         .layout = &ddp->layout,
                                         .options = &ddp->options,
                                         .has_rebuilt = ddp->has_rebuilt,
                                         .is_joining = ddp->join.is_on,
                                         .is_device = ct_group_is_device(ddp->group)};
    int rc = ct_stats_format(&ddp->stats, &facts, out, size);

    return rc < 0 ? ct_fail(err, rc, "ddp: statistics: more than %zu bytes", size) : rc;
}
