/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/exit_cause.h"

#include <signal.h>
#include <sys/wait.h>

void exit_cause_classify(const struct exit_cause_evidence *evidence,
                         struct ct_failure *failure)
{
    const int signal = WIFSIGNALED(evidence->status) ? WTERMSIG(evidence->status) : 0;
    const int code = signal ? 0 : WEXITSTATUS(evidence->status);

    failure->code = signal ? signal : code;
    failure->end_code = signal ? -signal : code;
    if (!signal && code == 0) {
        failure->cause = CT_CAUSE_NONE;
    } else if (signal == SIGKILL && evidence->is_oom_proven &&
               evidence->stop_signal != SIGKILL) {
        failure->cause = CT_CAUSE_OOM;
    } else if (evidence->stop_signal && (signal || !evidence->has_no_handler)) {
        failure->cause = CT_CAUSE_STOPPED;
        failure->code = signal ? signal : evidence->stop_signal;
    } else {
        failure->cause = signal ? CT_CAUSE_SIGNAL : CT_CAUSE_EXIT;
    }
}
