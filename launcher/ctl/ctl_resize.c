/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl resize: other limits for a live run. */
#include <string.h>

#include "launcher/ctl/ctl_run.h"
#include "launcher/options/nnodes.h"
#include "worker_sdk/base/error.h"

static const struct ctl_option options[] = {CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_RESIZE};
    struct ctrun_error err;
    struct nnodes nodes;

    if (nnodes_parse(call->words[0], &nodes, &err) < 0 || nodes.min < 1) {
        (void)ct_fail(&err, CTRUN_E_USAGE, "resize %s: N or MIN:MAX, 1 <= MIN <= MAX",
                      call->words[0]);
        return ctl_fail(&err);
    }
    request.signal = strchr(call->words[0], ':') ? nodes.min : 0; /* N: MIN stays */
    request.rank = nodes.max;
    return ctl_run_show(call, &request, "text", "was asked", "");
}

const struct ctl_verb ctl_resize = {
    .name = "resize",
    .words = "N|MIN:MAX",
    .word_min = 1,
    .word_max = 1,
    .help =
        "change how many nodes a live run may have\n"
        "With fewer than run now, those with the highest ranks become spares; with "
        "more,\n"
        "spares and new nodes join. Either way the workers start again, which does not "
        "count\n"
        "as a restart.\n"
        "N alone keeps the minimum, unless that is above N. A new minimum applies from "
        "the\n"
        "next round.",
    .options = options,
    .run = run,
};
