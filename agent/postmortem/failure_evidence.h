/* SPDX-License-Identifier: Apache-2.0 */
/* What a dead worker left behind, gathered into its failure's facts while it can still be seen. */
#pragma once

#include "agent/postmortem/oom_counter.h"
#include "agent/postmortem/memory.h"
#include "worker_sdk/wire/message.h"

struct failure_evidence {
    int status;            /* of wait4() */
    uint64_t peak_bytes;   /* the most memory it held */
    uint64_t cpu_ms;       /* its processor time, without its children; after SIGKILL */
    uint64_t started_ms;   /* monotonic */
    uint64_t seen_ms;      /* monotonic: when it was found dead */
    const char *program;   /* argv[0] */
    bool has_core_raised;  /* --core */
    int passed_signal;     /* the last one that ctrun passed on to it; 0: none */
    const char *oom_proof; /* "oom_kill 0 -> 1 in /job"; empty: none */
    const struct oom_counter *cgroup;
    const struct memory_curve *memory;
    const char
        *larger; /* "rank 0 holds 5.1 GiB": who held more than it; empty: nobody */
    const char *last_lines; /* of its output */
    int crash_record;       /* of a crash that its worker has reported; -1: none */
};

/* After cause, code and text of the failure are known. */
void failure_evidence_add(struct ct_failure *failure,
                          const struct failure_evidence *evidence);
