/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on a reducer between steps. */
#include <errno.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/clip.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/replicas.h"

int ctrun_ddp_zero_grad(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int rc = 0;

    if (!ddp)
        return ct_fail_null(err, "DDP object");
    /* Before that the sums have not begun: torch's order "forward, zero_grad, backward" is fine. */
    if (ddp->state == DDP_BACKWARD && ddp->has_seen_grad)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "ddp: gradients cannot be zeroed once one of them is ready: call "
            "ctrun_ddp_backward_end() first");
    for (size_t s = 0; rc == 0 && s < ddp->layout.slot_count; s++) {
        struct ct_slot *slot = &ddp->layout.slots[s];

        rc = ct_group_clear(ddp->group, slot->grad, slot->bytes, stream, err);
        slot->is_present = false;
    }
    return rc < 0 ? rc : ct_group_hold_back(ddp->group, stream, err);
}

/* With `norm` the host waits for the norm; else it does not, and the next backward reports NaN. */
static int clip_on_device(struct ctrun_ddp *ddp, double max_norm, double *norm,
                          struct ctrun_error *err)
{
    int rc = 0;

    if (ddp->is_capturing && norm)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: clipping in a capture cannot return the norm: pass "
                       "NULL for norm");
    if (ddp->checks.found_work) { /* one more in the same step */
        rc = ctrun_work_wait(ddp->checks.found_work, err);
        ddp->checks.found_work = NULL;
    }
    if (rc == 0)
        rc = ct_checks_clip(&ddp->checks, &ddp->layout, max_norm, ddp->stream, err);
    if (ddp->is_capturing) { /* ctrun_ddp_replayed() fetches */
        rc = rc < 0 ? rc : ct_group_hold_back(ddp->group, ddp->stream, err);
        ddp->has_clip = ddp->has_clip || rc == 0;
        return rc;
    }
    if (rc == 0)
        rc = ct_checks_fetch(&ddp->checks, ddp->stream, err);
    if (rc == 0 && norm)
        rc = ct_ddp_wait(ddp, err);
    if (rc < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    if (!norm)
        return 0;
    *norm = ddp->checks.found.norm;
    return ct_ddp_check_clip(ddp, err);
}

/* Of all gradients, by slot. Where each rank has slices, its sums are parts of them. */
static int sum_squares(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    ct_clip_sum(&ddp->layout, ddp->squares);
    if (ddp->layout.ranks > 1)
        rc = ctrun_all_reduce(ddp->group, ddp->squares, ddp->squares,
                              ddp->layout.slot_count, CTRUN_F64, CTRUN_SUM, NULL, err);
    if (rc < 0)
        ddp->state = DDP_BROKEN;
    return rc;
}

int ctrun_ddp_clip_grad_norm(struct ctrun_ddp *ddp, double max_norm, double *norm,
                             struct ctrun_error *err)
{
    double found;
    long bad;
    int rc = ct_ddp_check(ddp, err);

    if (rc < 0)
        return rc;
    if (!(max_norm > 0))
        return ct_fail(err, -EINVAL,
                       "ddp: clipping: max_norm is %g, but must be more than 0",
                       max_norm);
    if (ddp->state != DDP_IDLE)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: clipping cannot run inside a step: call "
                       "ctrun_ddp_backward_end() first");
    if (ct_group_is_device(ddp->group))
        return clip_on_device(ddp, max_norm, norm, err);
    if ((rc = sum_squares(ddp, err)) < 0)
        return rc;
    if ((bad = ct_clip(&ddp->layout, ddp->squares, max_norm, &found)) >= 0)
        return ct_ddp_fail_clip(ddp, (size_t)bad, err);
    if (norm)
        *norm = found;
    return 0;
}

int ctrun_ddp_check_replicas(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    if ((rc = ct_ddp_check_between(ddp, err)) < 0)
        return rc;
    if (ddp->is_capturing)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: replicas cannot be compared in a capture: call "
                       "ctrun_ddp_capture_end() first");
    rc = ct_ddp_compare_replicas(ddp->group, ddp->params, ddp->param_count,
                                 ct_group_is_device(ddp->group) ? &ddp->checks : NULL,
                                 ddp->stream, err);
    if (rc < 0 && rc != CTRUN_E_MISMATCH && rc != -ENOMEM)
        ddp->state = DDP_BROKEN;
    return rc;
}

bool ctrun_ddp_grad_is_used(const struct ctrun_ddp *ddp, size_t p)
{
    if (!ddp || p >= ddp->param_count || ddp->slot_of[p] == CT_NO_SLOT)
        return false;
    return !(ddp->options.find_unused || ddp->options.static_graph) ||
           ddp->was_used[ddp->slot_of[p]];
}

int ctrun_ddp_get_stats(const struct ctrun_ddp *ddp, struct ctrun_ddp_stats *out,
                        struct ctrun_error *err)
{
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    size_t room = sizeof stats.bucket_bytes / sizeof *stats.bucket_bytes;

    if (!ddp)
        return ct_fail_null(err, "DDP object");
    stats.iterations = ddp->stats.iterations;
    stats.has_rebuilt_buckets = ddp->has_rebuilt;
    stats.bucket_count = ddp->layout.bucket_count;
    stats.backward_compute_ns = ddp->stats.last[CT_TIME_BACKWARD];
    stats.backward_comm_ns = ddp->stats.last[CT_TIME_COMM];
    for (size_t b = 0; b < ddp->layout.bucket_count && b < room; b++)
        stats.bucket_bytes[b] = ddp->layout.buckets[b].bytes;
    return ct_sized_write(out, &stats, sizeof stats, "CTRUN_DDP_STATS_INIT", err);
}

int ctrun_ddp_stats_json(const struct ctrun_ddp *ddp, char *out, size_t size,
                         struct ctrun_error *err)
{
    struct ct_stats_facts facts;
    int rc;

    if (!ddp)
        return ct_fail_null(err, "DDP object");
    if (!out)
        return ct_fail_null(err, "out");
    facts = (struct ct_stats_facts){.rank = ddp->rank,
                                    .world_size = ddp->world_size,
                                    .params = ddp->params,
                                    .param_count = ddp->param_count,
                                    .layout = &ddp->layout,
                                    .options = &ddp->options,
                                    .has_rebuilt = ddp->has_rebuilt,
                                    .is_joining = ddp->join.is_on,
                                    .is_device = ct_group_is_device(ddp->group)};
    rc = ct_stats_format(&ddp->stats, &facts, out, size);
    return rc < 0
               ? ct_fail(err, rc,
                         "ddp: statistics: the text does not fit into %zu bytes", size)
               : rc;
}
