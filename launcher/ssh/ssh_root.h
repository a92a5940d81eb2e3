/* SPDX-License-Identifier: Apache-2.0 */
/* The process that --hosts was typed at: calls all hosts, lets the first one serve, starts the
 * run when all are there, shows it, passes signals on, and ends with its exit code.
 *
 *     CALLING ──all READY, or enough──> (STAGING ──>) SERVING ──address──> RUNNING ──all ended──> over
 *        └──────── too few ───────────────────────────────┴── signal, the host is lost ──▲
 */
#pragma once

#include <stdbool.h>

#include "launcher/options/exit_style.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_subtree.h"
#include "launcher/ssh/ssh_stage.h"

struct ssh_root_options {
    const struct ssh_job *job;
    uint32_t here; /* place of this machine, or SSH_NOWHERE */
    uint32_t min_nodes;
    struct ssh_stage_plan *stage; /* nothing to be staged: its scan is NULL */
    bool serves; /* a rendezvous has to be opened on one of the hosts */
    uint64_t grace_ms;
    enum exit_style exit_style;
    const char *signals; /* names, as in --signals-to-handle */
};

/* The exit code, or a code when nothing could be started. */
int ssh_root_run(const struct ssh_root_options *options, struct ctrun_error *err);
