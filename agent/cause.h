/* SPDX-License-Identifier: Apache-2.0 */
/* Why a worker ended, from what the kernel says and what we did to it. Pure. */
#ifndef AGENT_CAUSE_H
#define AGENT_CAUSE_H

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

struct cause_evidence {
    int status;         /* of waitpid() */
    int stop_signal;    /* the signal that we had sent before it ended; 0: none */
    bool is_oom_proven; /* the kernel's count of its kills for memory has grown */
};

/* Fills cause and code. A clean end is CT_CAUSE_NONE, also after our signal. An end that
 * follows our signal is a consequence, whatever its form, unless the kernel was first. */
void cause_classify(const struct cause_evidence *evidence, struct ct_failure *failure);

#endif
