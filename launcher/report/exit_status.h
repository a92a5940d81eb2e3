/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that says which status a ctrun ends with. What a failure costs is decided once, by
 * the rendezvous server (verdict.exit_code); here it meets --exit-code and what is no verdict. */
#pragma once

#include <stdbool.h>

#include "launcher/options/exit_style.h"
#include "worker_sdk/wire/message.h"

/* How it ended: the first of these that is set counts. */
struct exit_end {
    int signal; /* that ended the launcher, and the run with it */
    int error;  /* CTRUN_E_*, a negative errno: trouble of its own */
    const struct ct_verdict *verdict; /* borrowed; NULL: none came */
    int status; /* what another process of the same run ended with, or 0 */
};

/* 0 for success only. A mistake of the command line is 2 in every style, as torchrun's is. */
int exit_status(const struct exit_end *end, enum exit_style style);
/* True when that is a status that a worker ended with, or 128 + the signal it died of. */
bool exit_status_is_workers(const struct exit_end *end, enum exit_style style);
