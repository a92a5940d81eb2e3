/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of ctrun's options: parser, --help, completion and a test of the man page read it. */
#pragma once

#include <stdbool.h>

enum option_id {
    OPTION_NNODES,
    OPTION_NPROC_PER_NODE,
    OPTION_MODULE,
    OPTION_NO_PYTHON,
    OPTION_USE_ENV,
    OPTION_RUN_PATH,
    OPTION_START_METHOD,
    OPTION_WARM,
    OPTION_JAX,
    OPTION_STANDALONE,
    OPTION_RDZV_BACKEND,
    OPTION_RDZV_ENDPOINT,
    OPTION_RDZV_ID,
    OPTION_RDZV_CONF,
    OPTION_RDZV_TOKEN_FILE,
    OPTION_BOOTSTRAP,
    OPTION_HOSTS,
    OPTION_HOSTS_FILE,
    OPTION_HOSTS_ENV,
    OPTION_HOSTS_TIMEOUT,
    OPTION_SSH,
    OPTION_STAGE,
    OPTION_STAGE_DIR,
    OPTION_STAGE_REMOVE,
    OPTION_AUTH,
    OPTION_ENCRYPT,
    OPTION_HA,
    OPTION_LOCAL_ADDR,
    OPTION_NET,
    OPTION_PORT_RANGE,
    OPTION_STORE_ACCESS,
    OPTION_NODE_RANK,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_ROLE,
    OPTION_MAX_RESTARTS,
    OPTION_ROLE_RESTARTS,
    OPTION_MIN_UPTIME,
    OPTION_HANG_TIMEOUT,
    OPTION_STRAGGLERS,
    OPTION_RESTART_DELAY,
    OPTION_GPU_WAIT,
    OPTION_EXCLUDE_AFTER,
    OPTION_BUDGET,
    OPTION_FAILURE_RULES,
    OPTION_NODE_UNIT,
    OPTION_MONITOR_INTERVAL,
    OPTION_SIGNALS_TO_HANDLE,
    OPTION_SHUTDOWN_TIMEOUT,
    OPTION_SURVIVOR_GRACE,
    OPTION_SURVIVE,
    OPTION_SURVIVE_TIMEOUT,
    OPTION_SURVIVE_REPLACE,
    OPTION_EXIT_CODE,
    OPTION_SIGNAL_SCOPE,
    OPTION_ALLOW_CHAOS,
    OPTION_REQUEUE_EXIT,
    OPTION_STOP_BEFORE_END,
    OPTION_LOG_DIR,
    OPTION_REDIRECTS,
    OPTION_TEE,
    OPTION_LOG_LINE_PREFIX_TEMPLATE,
    OPTION_LOCAL_RANKS_FILTER,
    OPTION_DUPLICATE_STDOUT_FILTERS,
    OPTION_DUPLICATE_STDERR_FILTERS,
    OPTION_COLLAPSE,
    OPTION_COLOR,
    OPTION_STDIN,
    OPTION_LOG_MAX_SIZE,
    OPTION_LOG_KEEP,
    OPTION_LOG_RATE_LIMIT,
    OPTION_SUMMARY,
    OPTION_PTY,
    OPTION_REDACT,
    OPTION_LOGS_SPECS,
    OPTION_EVENT_LOG_HANDLER,
    OPTION_VIRTUAL_LOCAL_RANK,
    OPTION_NUMA_BINDING,
    OPTION_NIC_AFFINITY,
    OPTION_OMP_THREADS,
    OPTION_OPEN_FILES,
    OPTION_CORE,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_TIMESTAMPS,
    OPTION_CONFIG,
    OPTION_DRY_RUN,
    OPTION_PRINT_CONFIG,
    OPTION_JSON,
    OPTION_PRINT_COMPLETION,
    OPTION_VERSION,
    OPTION_HELP,
    OPTION_COUNT,
};

enum option_kind {
    OPTION_KIND_FLAG, /* takes no value */
    OPTION_KIND_TEXT,
    OPTION_KIND_INT, /* Python's int(): blanks around it and a sign are fine */
    OPTION_KIND_FLOAT,
    OPTION_KIND_STOP, /* acts at once: nothing after it is read */
};

enum option_group {
    OPTION_GROUP_SIZE,
    OPTION_GROUP_PROGRAM,
    OPTION_GROUP_MEET,
    OPTION_GROUP_FAILURE,
    OPTION_GROUP_OUTPUT,
    OPTION_GROUP_DEVICE,
    OPTION_GROUP_LAUNCHER,
    OPTION_GROUP_COUNT,
};

struct option {
    const char *name; /* dash form, without dashes in front */
    char letter;      /* 0: no short form */
    enum option_kind kind;
    enum option_group group;
    bool is_own;          /* torchrun does not have it */
    const char *env;      /* NULL: none */
    const char *fallback; /* as if typed; NULL: unset */
    const char *alone;    /* the value without '=VALUE'; NULL: a value is required */
    const char *value;    /* placeholder in the help; NULL for flags */
    const char *choices;  /* words separated by blanks; NULL: anything */
    const char *help;
    bool
        is_launch_only; /* ctrun accepts its whole name without effect and never shows it */
};

extern const struct option option_table[OPTION_COUNT];
extern const char *const option_group_titles[OPTION_GROUP_COUNT];
