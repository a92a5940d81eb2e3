/* SPDX-License-Identifier: Apache-2.0 */
/* Why a worker ended, from its wait status, the kernel's counters and our own signals. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

struct exit_cause_evidence {
    int status;          /* of waitpid() */
    int stop_signal;     /* the signal that we had sent before it ended; 0: none */
    bool has_no_handler; /* when it was sent: an exit code was on its way before */
    bool is_oom_proven;  /* the kernel's count of OOM kills has grown */
};

/* Fills cause, code and end_code. A clean end is CT_CAUSE_NONE, also after our signal. Any other
 * end after our signal is a consequence of it, unless the kernel killed the worker first, or it ended with an exit
 * code although the signal would have killed it. */
void exit_cause_classify(const struct exit_cause_evidence *evidence,
                         struct ct_failure *failure);
