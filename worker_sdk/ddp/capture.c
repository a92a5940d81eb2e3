/* SPDX-License-Identifier: Apache-2.0 */
/* A step in a CUDA graph: recorded once, and launched by the caller as often as there are steps.
 *
 * Every step puts the same work on streams, once the buckets are final and no part of a step needs
 * the host. ctrun_ddp_replayed() fetches after each launch how it ended, the flag of layout.h
 * included. This fetch is a call that the group watches: so a rank that is lost in a graph ends
 * the graph as it ends a step. */
#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/reducer.h"

/* Refuses options that make steps differ, or that need the host in a step. */
static int check_options(const struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const struct ctrun_ddp_options *options = &ddp->options;
    const char *what = !ct_group_is_device(ddp->group) ? "a group of the host"
                       : options->find_unused          ? "find_unused"
                       : options->static_graph         ? "static_graph"
                       : options->powersgd             ? "powersgd"
                       : ddp->buffer_count             ? "buffers (is_buffer)"
                       : ddp->join.is_on               ? "a join"
                                                       : NULL;

    return what ? ct_fail(err, CTRUN_E_UNSUPPORTED,
                          "ddp: a step with %s cannot be captured", what)
                : 0;
}

int ctrun_ddp_capture_begin(struct ctrun_ddp *ddp, void *stream,
                            struct ctrun_error *err)
{
    int rc;

    if ((rc = ct_ddp_check(ddp, err)) < 0 || (rc = check_options(ddp, err)) < 0)
        return rc;
    if (ddp->is_capturing)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: a capture has begun already: call "
                       "ctrun_ddp_capture_end() first");
    if (ddp->state != DDP_IDLE)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: a capture cannot begin inside a step: call "
                       "ctrun_ddp_backward_end() first");
    if (!ct_ddp_is_final(ddp) || ddp->stats.iterations == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: too early for a capture: make two steps that sum "
                       "gradients first; NCCL connects in the first one, and the "
                       "second one lays the buckets out anew");
    if ((rc = ct_ddp_look_back(ddp, err)) < 0)
        return rc;
    ddp->stream = stream;
    /* In a graph nothing waits for earlier work of the group. */
    rc = ct_group_hold_back(ddp->group, stream, err);
    if (rc < 0 && rc != CTRUN_E_USAGE)
        ddp->state = DDP_BROKEN;
    ddp->is_capturing = rc == 0;
    return rc;
}

int ctrun_ddp_capture_end(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    bool is_whole;

    if (!ddp)
        return ct_fail_null(err, "DDP object");
    if (!ddp->is_capturing)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: the end of a capture that has not begun: call "
                       "ctrun_ddp_capture_begin() first");
    is_whole = ddp->state == DDP_IDLE;
    if (!is_whole)
        (void)ct_ddp_wait(ddp, NULL); /* frees the works of what was recorded */
    ddp->is_capturing = false;
    ddp->state = DDP_IDLE;
    return is_whole ? 0
                    : ct_fail(err, CTRUN_E_USAGE,
                              "ddp: the capture ended inside a step: destroy its "
                              "graph, capture again, and call "
                              "ctrun_ddp_backward_end() before "
                              "ctrun_ddp_capture_end()");
}

/* The group's stream is behind `stream` here, and `stream` waits for the fetches: the next launch overwrites what they
 * read. The group watches these calls, but not those in a graph. */
static int fetch_end(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc = 0;

    if (ddp->world_size > 1) /* the next launch overwrites both */
        rc = ct_group_fetch_start(ddp->group, ddp->flag, ddp->layout.flag,
                                  ct_layout_flag_bytes(&ddp->layout), ddp->stream,
                                  &ddp->flag_work, err);
    ddp->checks.has_found = false; /* of the launch before */
    if (rc == 0 && (ddp->has_clip || ddp->options.check_finite))
        return ct_checks_fetch(&ddp->checks, ddp->stream, err);
    return rc == 0 ? ct_group_hold_back(ddp->group, ddp->stream, err) : rc;
}

int ctrun_ddp_replayed(struct ctrun_ddp *ddp, void *stream, struct ctrun_error *err)
{
    int ended, rc = ct_ddp_check(ddp, err);

    if (rc < 0)
        return rc;
    if (!ddp->has_capture || ddp->is_capturing || ddp->state != DDP_IDLE)
        return ct_fail(err, CTRUN_E_USAGE, "ddp: replayed: %s",
                       ddp->has_capture
                           ? "call it after a launch, not inside a step or a capture"
                           : "no step was captured");
    /* Before any work of the group for the launch before: so the collectives of that work run
     * after this launch on all ranks. */
    if ((rc = ct_group_clear(ddp->group, NULL, 0, stream, err)) < 0) {
        ddp->state = DDP_BROKEN;
        return rc;
    }
    ddp->stream = stream;
    rc = ct_ddp_look_back(ddp, err);
    if (ddp->state == DDP_BROKEN)
        return rc;
    ddp->report = (struct ct_ddp_report){.code = 0};
    if ((ended = fetch_end(ddp, rc < 0 ? NULL : err)) < 0)
        ddp->state = DDP_BROKEN;
    ddp->stats.iterations++;
    return rc < 0 ? rc : ended;
}
