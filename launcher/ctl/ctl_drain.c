/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl drain: the nodes of a host, or all nodes, save and leave; can be asked on any node. */
#include "launcher/ctl/ctl_run.h"
#include "worker_sdk/base/str.h"

static const struct ctl_option options[] = {
    {.name = "all", .help = "every node: the run ends"}, CTL_REASON, CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_DRAIN, .rank = -1};
    const char *host = call->word_count > 0 ? call->words[0] : "";
    const char *reason = ctl_value(call, "reason");
    struct ctrun_error err = {0};
    char whose[CT_HOST_MAX + 8];

    if ((*host != '\0') == (ctl_value(call, "all") != NULL))
        (void)ct_fail(&err, CTRUN_E_USAGE, "drain: name one host, or give --all");
    else if (ct_format(request.reason, sizeof request.reason, "%s %s", host,
                       reason ? reason : "ctrunctl drain") < 0)
        (void)ct_fail(&err, CTRUN_E_USAGE, "host and --reason: at most %zu bytes",
                      sizeof request.reason - 2);
    if (err.code < 0)
        return ctl_fail(&err);
    (void)ct_format(whose, sizeof whose, "%s of ", *host ? host : "every node");
    return ctl_run_do(call, &request, whose, "was asked to save and leave");
}

const struct ctl_verb ctl_drain = {
    .name = "drain",
    .words = "[HOST]",
    .word_max = 1,
    .help = "ask the nodes of a host, or all nodes, to save and leave, as `stop` does "
            "there\n"
            "HOST is the name that `ctrunctl status` shows there. The others continue "
            "without it,\n"
            "or with a spare in its place, while at least the minimum of nodes is "
            "left; this does\n"
            "not count as a restart. Of several nodes on one host, `ctrunctl stop "
            "--run=PID` there\n"
            "ends one.",
    .options = options,
    .run = run,
};
