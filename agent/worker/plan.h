/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of one worker, and the options that all workers of a node share: the launcher fills them
 * in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/output/stream.h"
#include "agent/process/bind.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

struct template_plan;

/* What one worker reads as its standard input. */
enum agent_input {
    AGENT_INPUT_SHARED, /* the agent's standard input, as every other worker */
    AGENT_INPUT_SOLE, /* the agent's, and no other worker's; a terminal stays a terminal */
    AGENT_INPUT_NONE, /* /dev/null */
};

/* One worker, ready to be started; made by worker_options.plan for each (re)start. */
struct agent_worker_plan {
    char **argv;       /* owned; argv[0] is looked up in PATH */
    struct ct_env env; /* owned; complete */
    enum agent_input in;
    enum agent_stream out;
    enum agent_stream err;
    char *out_file; /* owned; NULL when not used. Directories exist */
    char *err_file;
    char *error_file; /* owned; TORCHELASTIC_ERROR_FILE, NULL when none */
    char *prefix;     /* owned; in front of teed lines, NULL: none */
    const char *
        out_paint; /* kept; escape sequence for the prefix on the console; NULL: none */
    const char *err_paint;
    char *
        filtered_out_file; /* owned; gets teed lines that hold one of the filter texts */
    char *filtered_err_file;
    struct bind bind; /* CPUs and limits; zeroed: those of the agent */
    bool may_restart; /* restarts_alone() decides about a failure */
    bool is_python;   /* its interpreter writes nothing late: argv[1] is "-u" */
    int restarts; /* argument of plan: restarts of this worker alone in this round */
};

void agent_worker_plan_deinit(struct agent_worker_plan *plan);

struct worker_options {
    bool uses_pty; /* where our stdout or stderr is a terminal, so is the workers' */
    int pmi_fd; /* the PMI descriptor of another launcher, for the only worker; 0: none */
    const char *const
        *out_filters; /* --duplicate-stdout-filters, NULL-terminated or NULL */
    const char *const *err_filters;
    uint64_t log_max_bytes; /* of each log file, which is then renamed; 0: no cap */
    int log_keep;           /* renamed log files that are kept */
    uint64_t rate_limit;    /* bytes a second of a worker on the console; 0: no limit */
    /* A worker that fails earlier has made no progress, unless it reports steps; 0: not checked. */
    uint64_t min_uptime_ms;
    bool redacts; /* failure reports contain no secrets: agent/error_file/redact.h */
    int local_id; /* local rank of this agent's first worker, where a node has several agents */
    const struct template_plan
        *template; /* --warm: the template that workers are forked from if possible; NULL: none */

    void *context; /* given to the functions below */
    /* Builds worker `local_rank` of this round. 0 or a code; the agent frees the plan. CTRUN_E_EXEC and -ENOEXEC: the
     * program is missing or cannot be executed. */
    int (*plan)(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err);
    /* Whether a worker with that environment may use the GPU at "0000:3b:00": 1, 0, or negative: not
     * known. NULL: not known. */
    int (*may_use_gpu)(char *const *env, const char *pci);
    /* Orphans of the workers of the ending round, which were killed with the workers. */
    void (*on_orphans)(void *context, const char *processes);
    /* With rate_limit: how much output of this rank was not shown since the last call. */
    void (*on_left_out)(void *context, int rank, uint64_t lines, uint64_t bytes);
    /* For events: a worker runs; a worker has ended (cause CT_CAUSE_NONE: with success). */
    void (*on_worker_started)(void *context, int local_rank, int pid);
    void (*on_worker_ended)(void *context, const struct ct_failure *end);
};
