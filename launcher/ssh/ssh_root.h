/* SPDX-License-Identifier: Apache-2.0 */
/* The process in which --hosts was typed: calls all hosts, lets the first one serve, starts the run
 * when all hosts are READY, prints its output, passes signals on, and ends with its exit code.
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
    struct ssh_stage_plan *stage; /* scan NULL: nothing to stage */
    bool serves;                  /* one of the hosts has to serve the rendezvous */
    uint64_t grace_ms;
    enum exit_style exit_style;
    const char *signals; /* names, as in --signals-to-handle */
};

/* The exit code, or a code when nothing could be started. */
int ssh_root_run(const struct ssh_root_options *options, struct ctrun_error *err);
