/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl signal: sends a signal to the workers; ctrun itself does nothing more. */
#include "launcher/ctl/ctl_run.h"
#include "worker_sdk/base/signal_name.h"

static const struct ctl_option options[] = {
    CTL_RANK,
    {.name = "force", .help = "send it although workers here would die of it"},
    CTL_OF_RUN};

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {.verb = CT_CTL_SIGNAL,
                                     .signal = ct_signal_parse(call->words[0])};
    struct ctrun_error err;
    int rank;

    if (request.signal < 0) {
        (void)ct_fail(&err, CTRUN_E_USAGE, "signal %s: there is no such signal",
                      call->words[0]);
        return ctl_fail(&err);
    }
    if (ctl_number(call, "rank", &rank, &err) < 0)
        return ctl_fail(&err);
    request.rank = rank;
    if (ctl_value(call, "force"))
        request.verb = CT_CTL_SIGNAL_FORCED;
    return ctl_run_do(call, &request, "", NULL);
}

const struct ctl_verb ctl_signal = {
    .name = "signal",
    .words = "SIGNAL",
    .word_min = 1,
    .word_max = 1,
    .help = "send a signal (USR1, SIGUSR1, 10) to the workers of this node\n"
            "One that the workers of this node neither catch nor ignore, and would die "
            "of, is\n"
            "refused without --force; TERM, INT, QUIT, HUP, ABRT and KILL are not.\n"
            "USR1 and USR2 reach the workers of all nodes (--signal-scope of ctrun).\n"
            "To the workers themselves, not to their children. A worker that dies of "
            "it has\n"
            "failed: the run restarts or ends, as after any failure.",
    .options = options,
    .choices = "USR1 USR2 TERM INT HUP QUIT KILL STOP CONT",
    .run = run,
};
