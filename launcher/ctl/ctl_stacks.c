/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl stacks: the current stacks of a run's workers, on all of its nodes. */
#include "launcher/ctl/ctl_run.h"
#include "worker_sdk/base/str.h"

static const struct ctl_option options[] = {CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_STACKS, .rank = -1};
    struct ctrun_error err;
    uint64_t rank = 0;

    if (call->word_count > 0 && ct_parse_u64(call->words[0], 0, INT32_MAX, &rank) < 0) {
        (void)ct_fail(&err, CTRUN_E_USAGE, "stacks %s: a rank is a number from 0 on",
                      call->words[0]);
        return ctl_fail(&err);
    }
    if (call->word_count > 0)
        request.rank = (int32_t)rank;
    return ctl_run_show(call, &request, "stacks", "no worker runs", "");
}

const struct ctl_verb ctl_stacks = {
    .name = "stacks",
    .words = "[RANK]",
    .word_max = 1,
    .help =
        "print the current stacks of the workers of all nodes\n"
        "For CPython 3.9 to 3.14 each thread with its frames, for any program the C "
        "frames\n"
        "and the kernel function. All is read from outside; a thread that runs is "
        "stopped for\n"
        "some microseconds. Workers continue, so Python frames may be of different "
        "times.",
    .options = options,
    .run = run,
};
