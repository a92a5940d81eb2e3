/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl stop: the workers save and the run ends, as at a preemption. */
#include "launcher/ctl/ctl_run.h"

static const struct ctl_option options[] = {CTL_REASON, CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_STOP, .rank = -1};
    struct ctrun_error err;

    if (ctl_run_take_reason(&request, call, &err) < 0)
        return ctl_fail(&err);
    return ctl_run_do(call, &request, "", "was asked to stop");
}

const struct ctl_verb ctl_stop = {
    .name = "stop",
    .words = "",
    .help =
        "ask this node's workers to save, then end them as SIGTERM to ctrun does\n"
        "Workers of the SDK get the request (ctrun_should_stop) and have the grace "
        "time\n"
        "(--shutdown-timeout) to leave by themselves. Then, or at once when no worker\n"
        "of this node uses the SDK: SIGTERM, the grace time again, SIGKILL. ctrun "
        "ends\n"
        "with 143. Returns when ctrun has the request, not when it has ended.",
    .options = options,
    .run = run,
};
