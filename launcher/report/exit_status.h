/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that decides the exit status of a ctrun. The rendezvous server decides the code of
 * a failure once (verdict.exit_code); this module applies --exit-code, and handles ends without a
 * verdict. */
#pragma once

#include <stdbool.h>

#include "launcher/options/exit_style.h"
#include "worker_sdk/wire/message.h"

/* How the launcher ended: the first of these that is set counts. */
struct exit_end {
    int signal; /* that ended the launcher, and the run with it */
    int error;  /* CTRUN_E_*, a negative errno: the launcher's own error */
    const struct ct_verdict *verdict; /* borrowed; NULL: none came */
    int status; /* what another process of the same run ended with, or 0 */
};

/* 0 for success only. A mistake of the command line is 2 in every style, as torchrun's is. */
int exit_status(const struct exit_end *end, enum exit_style style);
/* True when the status is a worker's exit code, or 128 + the signal that killed a worker. */
bool exit_status_is_workers(const struct exit_end *end, enum exit_style style);
