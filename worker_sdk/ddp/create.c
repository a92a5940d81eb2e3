/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys a reducer. */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/sync.h"

/* The gradients in the caller's memory must not overlap, or one would get the sums of another. */
static int grads_check(const struct ctrun_param *params, size_t count,
                       struct ctrun_error *err)
{
    bool any = false;

    for (size_t p = 0; p < count; p++)
        any = any || (params[p].grad && !params[p].no_grad);
    for (size_t p = 0; any && p < count; p++) {
        const uintptr_t begin = (uintptr_t)params[p].grad;
        const size_t bytes = params[p].no_grad ? 0 : ct_ddp_param_bytes(&params[p]);

        if (bytes && !begin)
            return ct_fail(err, -EINVAL,
                           "ddp: params[%zu] '%s' has no memory for its gradient: set "
                           "grad in all parameters that get a gradient, or in none",
                           p, params[p].name);
        for (size_t q = 0; bytes && q < p; q++) {
            const uintptr_t other = (uintptr_t)params[q].grad;

            if (!params[q].no_grad && begin < other + ct_ddp_param_bytes(&params[q]) &&
                other < begin + bytes)
                return ct_fail(err, -EINVAL,
                               "ddp: the gradients of params[%zu] '%s' and params[%zu] "
                               "'%s' overlap",
                               q, params[q].name, p, params[p].name);
        }
    }
    return 0;
}

static int params_check(const struct ctrun_param *params, size_t count,
                        struct ctrun_error *err)
{
    bool any = false;
    int rc;

    for (size_t p = 0; p < count; p++) {
        if ((rc = ct_ddp_param_check(&params[p], p, err)) < 0)
            return ct_wrap(err, "ddp"), rc;
        any = any || !params[p].no_grad;
    }
    if (!any)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "DistributedDataParallel is not needed when a module doesn't have "
            "any parameter that requires a gradient.");
    return grads_check(params, count, err);
}

static int tables_create(struct ctrun_ddp *ddp)
{
    size_t count = ddp->param_count;
    size_t slots;

    if (ct_layout_init(&ddp->layout, ddp->params, count) < 0)
        return -ENOMEM;
    slots = ddp->layout.slot_count;
    ddp->layout.ranks = ddp->options.shard_gradients ? (size_t)ddp->world_size : 0;
    ddp->layout.rank = (size_t)ddp->rank;
    ddp->slot_of = ct_zalloc_array(count, sizeof *ddp->slot_of);
    ddp->order = ct_zalloc_array(slots, sizeof *ddp->order);
    ddp->used = ct_zalloc_array(slots, sizeof *ddp->used);
    ddp->was_used = ct_zalloc_array(slots, sizeof *ddp->was_used);
    ddp->squares = ct_zalloc_array(slots, sizeof *ddp->squares);
    ddp->buffers = ct_zalloc_array(count, sizeof *ddp->buffers);
    for (size_t p = 0; ddp->buffers && p < count; p++)
        if (ddp->params[p].is_buffer)
            ddp->buffers[ddp->buffer_count++] = ddp->params[p];
    if (!ddp->slot_of || !ddp->buffers || !ddp->order || !ddp->used || !ddp->was_used ||
        !ddp->squares)
        return -ENOMEM;
    for (size_t p = 0; p < count; p++)
        ddp->slot_of[p] = CT_NO_SLOT;
    for (size_t s = 0; s < slots; s++)
        ddp->slot_of[ddp->layout.slots[s].param] = s;
    return 0;
}

/* Gradients travel together where they are neighbours on every rank. Collective. */
static int cut_callers(struct ctrun_ddp *ddp, const uint64_t limits[2],
                       struct ctrun_error *err)
{
    const uint64_t mine = ct_layout_neighbours(&ddp->layout);
    uint64_t *all = ct_zalloc_array((size_t)ddp->world_size, sizeof *all);
    bool joins = true;
    int rc = all ? ctrun_all_gather(ddp->group, &mine, all, sizeof mine, CTRUN_U8, NULL,
                                    err)
                 : ct_fail(err, -ENOMEM, "ddp: out of memory");

    for (int r = 0; rc == 0 && r < ddp->world_size; r++)
        joins = joins && all[r] == mine;
    free(all);
    if (rc == 0 && ct_layout_cut(&ddp->layout, limits, 2, joins) < 0)
        rc = ct_fail(err, -ENOMEM, "ddp: out of memory");
    return rc;
}

/* The buckets of the first step: one per dtype unless find_unused, the last layers first. As in
 * PyTorch, a rebuild follows after the first step, in the order in which gradients were ready,
 * unless find_unused. With slices there is none, so that each rank's pieces stay its own. Reversed,
 * because backward makes the gradients of the last layers first. */
static int first_buckets(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const uint64_t limits[] = {ddp->options.first_bucket_bytes,
                               ddp->options.bucket_cap_bytes};
    const uint64_t unlimited = UINT64_MAX;
    struct ct_bucket_plan plan;
    int rc;

    if (ddp->layout.is_callers)
        return cut_callers(ddp, limits, err);
    if (ddp->layout.ranks || (ddp->options.find_unused && !ddp->options.static_graph))
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, limits, 2);
    else
        rc = ct_layout_assign(&ddp->layout, &plan, NULL, &unlimited, 1);
    if (rc == 0 && (rc = ct_bucket_plan_reverse(&plan)) < 0)
        ct_bucket_plan_deinit(&plan);
    return rc < 0 ? ct_fail(err, rc, "ddp: out of memory")
                  : ct_layout_place(&ddp->layout, &plan, ddp->stream, err);
}

/* All ranks call this with equal parameters and options (ct_ddp_verify), so the collectives below
 * are the same on all. */
static int build(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    void *arena;
    int rc;

    if (tables_create(ddp) < 0)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    if (!ddp->options.no_init_sync &&
        (rc = ct_ddp_sync(ddp->group, ddp->params, ddp->param_count, 0, ddp->stream,
                          err)) < 0)
        return rc;
    ddp->layout.group = ddp->group;
    rc = ctrun_group_alloc(ddp->group,
                           ddp->layout.is_callers ? CT_LAYOUT_ALIGN
                                                  : ct_layout_arena_bytes(&ddp->layout),
                           &arena, err);
    if (rc < 0)
        return rc;
    ddp->layout.arena = arena;
    if (ct_group_is_device(ddp->group) &&
        (rc = ct_checks_init(&ddp->checks, ddp->group, ddp->layout.slot_count,
                             ddp->param_count, err)) < 0)
        return rc;
    if ((rc = ct_hook_init(&ddp->hook, ddp->group, &ddp->layout, ddp->params,
                           &ddp->options, err)) < 0)
        return rc;
    if ((rc = first_buckets(ddp, err)) < 0)
        return rc;
    return ct_stats_init(&ddp->stats, &ddp->layout) < 0
               ? ct_fail(err, -ENOMEM, "ddp: out of memory")
               : 0;
}

/* Copies the caller's structs into structs of our own size. */
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
        return ct_wrap(err, "ddp: options"), rc;
    ddp->powersgd = (struct ctrun_powersgd_options)CTRUN_POWERSGD_OPTIONS_INIT;
    if (ddp->options.powersgd &&
        (rc = ct_sized_read(&ddp->powersgd, sizeof ddp->powersgd, ddp->options.powersgd,
                            "CTRUN_POWERSGD_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "ddp: powersgd"), rc;
    if (ddp->options.powersgd)
        /* The caller's struct may be gone after create: ours takes its place. */
        ddp->options.powersgd = &ddp->powersgd;
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, params, count,
                                  "CTRUN_PARAM_INIT", err)) < 0)
        return ct_wrap(err, "ddp: params"), rc;
    ddp->params = list;
    ddp->param_count = count;
    return params_check(ddp->params, count, err);
}

int ctrun_ddp_create(struct ctrun_ddp **out, struct ctrun_group *group,
                     const struct ctrun_param *params, size_t count,
                     const struct ctrun_ddp_options *options, struct ctrun_error *err)
{
    struct ctrun_ddp *ddp;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_group_check(group, "ddp", err)) < 0)
        return rc;
    if (!(ddp = ct_zalloc(sizeof *ddp)))
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    ddp->group = group;
    ddp->rank = ctrun_group_rank(group);
    ddp->world_size = ctrun_group_size(group);
    if (ct_group_is_device(group))
        ddp->stream = ct_group_stream(group);
    rc = take_arguments(ddp, params, count, options, err);
    /* a rank that refuses takes the others along */
    rc = ct_ddp_verify(group,
                       &(struct ct_ddp_model){.params = ddp->params,
                                              .count = ddp->param_count,
                                              .ddp = &ddp->options},
                       rc, err);
    if (rc < 0 || (rc = build(ddp, err)) < 0) {
        ctrun_ddp_destroy(ddp);
        return rc;
    }
    *out = ddp;
    return 0;
}

void ctrun_ddp_destroy(struct ctrun_ddp *ddp)
{
    if (!ddp)
        return;
    (void)ct_ddp_wait(ddp,
                      NULL); /* they write into our memory; nobody asks how they end */
    ct_layout_deinit(&ddp->layout);
    ct_join_end(&ddp->join);
    ct_hook_deinit(&ddp->hook);
    ct_checks_deinit(&ddp->checks);
    ct_stats_deinit(&ddp->stats);
    free(ddp->params);
    free(ddp->slot_of);
    free(ddp->order);
    free(ddp->used);
    free(ddp->was_used);
    free(ddp->squares);
    free(ddp->buffers);
    free(ddp);
}
