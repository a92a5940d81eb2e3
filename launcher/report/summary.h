/* SPDX-License-Identifier: Apache-2.0 */
/* How a run ended, for people, for grep and for the shell: a block with the root cause
 * first, then torchrun's own block with its labels, because scripts look for them. */
#pragma once

#include <stdbool.h>

#include "agent/error_file/json_error_file.h"
#include "launcher/report/messages.h"
#include "launcher/report/past_failures.h"

struct summary {
    const struct ct_verdict *verdict;
    const char *name;   /* script, module or program */
    const char *binary; /* what the failed worker executes; NULL: not known here */
    const char *run_id;
    const char *log_dir; /* of the last attempt, on this node; NULL: no files */
    bool is_alone;       /* no table follows: show the whole traceback */
    bool lists_stopped;  /* the table has a row for each rank that we stopped */
    uint32_t max_restarts;
    uint64_t min_uptime_ms; /* for CT_OUTCOME_CRASH_LOOP; 0: not known */
    uint32_t min_nodes;
    const struct ct_waiting *waiting; /* the last, for CT_OUTCOME_JOIN_TIMEOUT */
    bool counts_tasks;  /* min_nodes and `waiting` do: each task is an agent */
    bool waits_for_all; /* the batch system's tasks: with fewer it does not start */
    uint64_t waited_ms;
    bool is_static;                   /* backend */
    const struct past_failures *past; /* of earlier rounds; NULL: not known */
    const struct json_error_file
        *files; /* one per failure, zeroed where this node has none */
};

/* Our block: "ctrun: error[E_EXIT]: rank 1 (node2, pid 123) exited with 3 ...". */
void summary_format(struct messages_block *out, const struct summary *summary);
/* The facts that nodes found about a failure, one line each; the ranks that ended before and after
 * it. */
void summary_add_facts(struct messages_block *out, const struct ct_facts *facts);
void summary_add_others(struct messages_block *out, const struct ct_verdict *verdict);
/* Why no round followed the failure of a run that had restarts left: the nodes did not meet again. That, and not the
 * failure, decides the exit code. Nothing for another end. */
void summary_add_timeout(struct messages_block *out, const struct ct_verdict *verdict);
/* True for a rank that only ended because ctrun stopped it: by the signal, or with success. */
bool summary_is_stopped(const struct ct_verdict *verdict,
                        const struct ct_failure *failure);
/* "6 other ranks were stopped by ctrun: 0-2, 4-7"; "" for none. */
void summary_format_stopped(char *dst, size_t size, const struct ct_verdict *verdict);
/* E_OOM, E_SIGNAL, ...: the error code of a failure. */
int summary_code_of(const struct ct_failure *failure);
/* torchrun's: ChildFailedError, the frame, Failures, Root Cause. Empty when no worker
 * failed. */
void summary_torchrun_format(struct messages_block *out, const struct summary *summary);

/* Python's view of a worker's end: its code, or minus the signal; 0: nobody saw it end. */
int summary_python_code(const struct ct_failure *failure);
