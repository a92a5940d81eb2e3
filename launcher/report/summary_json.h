/* SPDX-License-Identifier: Apache-2.0 */
/* summary.json: how a run ended on this node, for programs: the facts of the failure block.
 * packaging/schema/summary.schema.json describes it, ctrun-events(7) explains it. */
#pragma once

#include "agent/watch/job_starts.h"
#include "launcher/report/bills.h"
#include "launcher/report/summary.h"

enum {
    SUMMARY_JSON_VERSION = 1 /* grows when a field changes its meaning or goes away */
};

struct summary_json {
    const struct summary *summary; /* its verdict has outcome 0 when there was none */
    const char *host;
    int exit_code;
    bool is_workers_code; /* a worker's code, or 128 + its signal */
    int signal;           /* != 0: what ended this launcher */
    bool allocation_ends; /* why it ended, or told workers to save */
    const char *
        asked; /* who ended the run and why, and which ranks were killed; may be empty */
    const struct ctrun_error *error; /* code != 0: the launcher's own error */
    const struct bills *bills;
    const char *batch_task;           /* empty: none */
    const struct job_starts *earlier; /* starts of the batch system's job */
    uint64_t duration_ms;
};

/* "failed"; NULL: of no enum ct_outcome. */
const char *summary_json_outcome(uint8_t outcome);
/* The value of "reason" when the end of the allocation is the reason. */
#define SUMMARY_JSON_ALLOCATION "allocation_ends"

/* The file's bytes; the caller frees. NULL: out of memory. */
char *summary_json_format(const struct summary_json *json, size_t *length);
