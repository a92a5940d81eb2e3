/* SPDX-License-Identifier: Apache-2.0 */
/* Reads summary.json: the fields that the failure block needs. */
#pragma once

#include "launcher/report/past_failures.h"

struct json_summary {
    struct ct_verdict verdict; /* outcome 0: ended without a verdict */
    char run_id[CT_RUN_ID_MAX];
    char program[256];
    char log_dir[512]; /* empty: none */
    char error[32];    /* E_...; empty: none */
    char message[1024];
    uint32_t max_restarts;
    int signal;           /* != 0: the signal that ended it */
    bool allocation_ends; /* the reason for the end */
    int exit_code;
    struct past_failures past; /* the caller frees them: past_failures_deinit() */
};

/* Which start of a job a file is of, and its sum of restarts. */
struct json_summary_start {
    char batch_task[CT_RUN_ID_MAX]; /* empty: none */
    uint32_t requeues;
    uint64_t total_restarts;
    uint32_t unknown_starts; /* not in the sum */
};

/* 0, -errno when the file cannot be read, -EBADMSG. */
int json_summary_read_start(const char *path, struct json_summary_start *out);
int json_summary_read(const char *path, struct json_summary *out);
