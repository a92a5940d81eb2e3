/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of ranks that have no data left. */
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/sync.h"

enum {
    STEPS_TO_WARN = 1000
};

int ctrun_ddp_join_begin(struct ctrun_ddp *ddp,
                         const struct ctrun_join_options *options,
                         struct ctrun_error *err)
{
    const int rc = ct_ddp_check_between(ddp, err);

    if (rc < 0)
        return rc;
    if (ddp->join.is_on)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "ddp: a join has begun already: call ctrun_ddp_join_end() first");
    if (ddp->is_capturing)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: a join cannot begin in a capture: call "
                       "ctrun_ddp_capture_end() first");
    if (ddp->options.static_graph)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: a join does not work with static_graph");
    return ct_join_begin(&ddp->join, ddp->group, options, err);
}

/* All ranks get this error, and may continue after it. */
static bool is_error_of_step(int rc)
{
    return rc == CTRUN_E_USAGE || rc == CTRUN_E_DIVERGED;
}

/* Takes part, with zeros, in a step of the ranks that have data. */
static int shadow_step(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    if (!ddp->is_sync) {
        ct_group_count_pass(ddp->group);
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
        rc = ct_ddp_mark_ready(ddp, &ddp->layout.slots[s], err);
    }
    if (rc == 0)
        rc = ctrun_ddp_backward_end(ddp, ddp->stream, err);
    if (is_error_of_step(rc))
        return 0;
    if (rc < 0 || !ddp->join.options.on_step)
        return rc < 0 ? rc : 0;
    if (err)
        err->text[0] = '\0';
    rc = ddp->join.options.on_step(ddp->join.options.context, err);
    return rc < 0 ? ct_fail_called(err, rc, "ddp: on_step") : 0;
}

/* Until all ranks are here. */
static int join_others(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    for (int steps = 0;;) {
        rc = ct_ddp_begin_forward(ddp, CT_TURN_JOINED, err);
        if (is_error_of_step(rc)) /* of the others' step before, on a device */
            continue;
        if (rc < 0 || ddp->join.active == 0 || (rc = shadow_step(ddp, err)) < 0)
            break;
        if (++steps == STEPS_TO_WARN)
            ct_warn("ddp rank without data still joins the others rank=%d steps=%d",
                    ddp->rank, steps);
    }
    if (rc == 0 && (rc = ct_ddp_sync(ddp->group, ddp->params, ddp->param_count,
                                     ddp->join.last, ddp->stream, err)) < 0)
        ddp->state = DDP_BROKEN;
    return rc;
}

int ctrun_ddp_join_end(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = ct_ddp_check_between(ddp, err);
    struct ctrun_error why; /* the last step of this rank failed, on a device */
    int own;

    if (rc < 0)
        return rc;
    if (!ddp->join.is_on)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: no join to end: none has begun, or a failed "
                       "ctrun_ddp_forward_begin() has ended it");
    own = ct_ddp_look_back(ddp, &why);
    if (own == 0 || is_error_of_step(own))
        rc = join_others(ddp, err);
    ct_join_end(&ddp->join);
    return rc < 0 || own == 0 ? rc : ct_fail(err, own, "%s", why.text);
}
