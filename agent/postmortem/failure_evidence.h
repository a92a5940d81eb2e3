/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence that a dead worker left behind, added to its failure's facts while it still exists. */
#pragma once

#include "agent/postmortem/oom_counter.h"
#include "agent/postmortem/memory.h"
#include "worker_sdk/wire/message.h"

struct failure_evidence {
    int status;          /* of wait4() */
    uint64_t peak_bytes; /* the most memory it held */
    /* its processor time, without its children; known after SIGKILL */
    uint64_t cpu_ms;
    uint64_t started_ms;   /* monotonic */
    uint64_t seen_ms;      /* monotonic: when it was found dead */
    const char *program;   /* argv[0] */
    bool has_core_raised;  /* --core */
    int passed_signal;     /* the last signal that ctrun passed on to it; 0: none */
    const char *oom_proof; /* "oom_kill 0 -> 1 in /job"; empty: none */
    uint64_t oom_seen_ms;  /* monotonic: when the count was seen to have grown */
    const struct oom_counter *cgroup;
    const struct memory_curve *memory;
    /* "rank 0 holds 5.1 GiB": a process that held more than it; empty: none */
    const char *larger;
    const char *last_lines; /* the last lines of its output */
    int crash_record;       /* of the record of its crash; -1: none */
    char *const *env;       /* its environment */
    /* Whether a process with that environment may use the GPU "0000:3b:00": 1, 0, or negative: not
     * known. NULL: nobody knows. */
    int (*may_use_gpu)(char *const *env, const char *pci);
};

/* Whether this is the process that the OOM killer ended, according to `oom_proof`: the log of the kernel names it,
 * or no other process, where it can be read, and the proof was seen a short time before its end. */
bool failure_evidence_is_oom(const struct failure_evidence *evidence, pid_t pid);
/* Adds what the kernel's log (`fd`, see kmsg_find_line) has about broken devices since the worker's
 * start, but not about GPUs that the worker could not use. */
void failure_evidence_add_kernel(struct ct_failure *failure,
                                 const struct failure_evidence *evidence, int fd);
/* After cause, code and text of the failure are known. */
void failure_evidence_add(struct ct_failure *failure,
                          const struct failure_evidence *evidence);
