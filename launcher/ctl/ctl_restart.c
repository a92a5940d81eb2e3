/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl restart: stops all workers and starts them again; it does not count as a failure. */
#include "launcher/ctl/ctl_run.h"

static const struct ctl_option options[] = {CTL_REASON, CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_RESTART, .rank = -1};
    struct ctrun_error err;

    if (ctl_run_take_reason(&request, call, &err) < 0)
        return ctl_fail(&err);
    return ctl_run_do(call, &request, "", "was asked to start a new round");
}

const struct ctl_verb ctl_restart = {
    .name = "restart",
    .words = "",
    .help = "stop all workers of the run and start them again, on the same nodes\n"
            "From any of its nodes. Workers are asked to save, as before every new "
            "round; this\n"
            "does not count as a restart of --max-restarts. All nodes print who asked, "
            "and why.",
    .options = options,
    .run = run,
};
