/* SPDX-License-Identifier: Apache-2.0 */
/* summary.json read back, as far as the block for people needs it. */
#pragma once

#include "worker_sdk/wire/message.h"

struct json_summary {
    struct ct_verdict verdict; /* outcome 0: it ended in another way */
    char run_id[CT_RUN_ID_MAX];
    char program[256];
    char log_dir[512]; /* empty: none */
    char error[32];    /* E_...; empty: none */
    char message[1024];
    uint32_t max_restarts;
    int signal;           /* != 0: it was ended by this signal */
    bool allocation_ends; /* that is why */
    int exit_code;
};

/* 0, -errno when the file cannot be read, -EBADMSG. */
int json_summary_read(const char *path, struct json_summary *out);
