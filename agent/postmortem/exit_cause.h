/* SPDX-License-Identifier: Apache-2.0 */
/* Why a worker ended, from what the kernel says and what we did to it. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

struct exit_cause_evidence {
    int status;         /* of waitpid() */
    int stop_signal;    /* the signal that we had sent before it ended; 0: none */
    bool is_oom_proven; /* the kernel's count of its kills for memory has grown */
};

/* Fills cause, code and end_code. A clean end is CT_CAUSE_NONE, also after our signal. An end that
 * follows our signal is a consequence, whatever its form, unless the kernel was first. */
void exit_cause_classify(const struct exit_cause_evidence *evidence,
                         struct ct_failure *failure);
