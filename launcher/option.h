/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table of options, and the parser that reads it as argparse
 * would.
 *
 * torchrun's grammar is kept to the letter, because it is in people's scripts: both
 * spellings of a name (--nproc-per-node, --nproc_per_node), any unambiguous prefix (the
 * two spellings count as two names), -r3, -r=3, clusters such as -mt3, everything
 * behind the first word that is no option belongs to the program. A default may come
 * from the environment (PET_NNODES), and else from the file of --config: option_file.h.
 *
 * Called by the name ctrun-launch the program has torch.distributed.launch's grammar:
 * the same, and --use-env.
 *
 * Parser, --help, completion and a test of the man page all read option_table. Pure. */
#ifndef LAUNCHER_OPTION_H
#define LAUNCHER_OPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum option_id {
    OPTION_NNODES,
    OPTION_NPROC_PER_NODE,
    OPTION_MODULE,
    OPTION_NO_PYTHON,
    OPTION_USE_ENV,
    OPTION_RUN_PATH,
    OPTION_START_METHOD,
    OPTION_PMI,
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
    OPTION_NODE_UNIT,
    OPTION_MONITOR_INTERVAL,
    OPTION_SIGNALS_TO_HANDLE,
    OPTION_SHUTDOWN_TIMEOUT,
    OPTION_EXIT_CODE,
    OPTION_SIGNAL_SCOPE,
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
    OPTION_LOGS_SPECS,
    OPTION_EVENT_LOG_HANDLER,
    OPTION_VIRTUAL_LOCAL_RANK,
    OPTION_NUMA_BINDING,
    OPTION_NIC_AFFINITY,
    OPTION_OMP_THREADS,
    OPTION_OPEN_FILES,
    OPTION_CORE,
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
    OPTION_KIND_STOP, /* acts where it stands: nothing behind it is read */
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
    const char *env;      /* NULL: none */
    const char *fallback; /* as if typed; NULL: unset */
    const char *value;    /* placeholder in the help; NULL for flags */
    const char *choices;  /* words separated by blanks; NULL: anything */
    const char *help;
    bool is_launch_only; /* known to ctrun-launch, not to ctrun */
};

extern const struct option option_table[OPTION_COUNT];
extern const char *const option_group_titles[OPTION_GROUP_COUNT];

enum option_source {
    OPTION_FROM_DEFAULT,
    OPTION_FROM_FILE,
    OPTION_FROM_ENV,
    OPTION_TYPED,
};

struct option_value {
    enum option_source source;
    int line; /* of the file of --config that has it, even if it did not win; 0: none */
    const char *text; /* borrowed from argv, the environment, the file or the table; may
                         be NULL */
    bool is_on;       /* flags */
    int64_t integer;  /* OPTION_KIND_INT with a text */
    double number;    /* OPTION_KIND_FLOAT */
};

enum options_action {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_COMPLETION, /* for the shell values[OPTION_PRINT_COMPLETION].text */
};

enum {
    OPTIONS_ROLES_MAX = CT_ROLES_MAX
};

struct options {
    enum options_action action;
    bool is_launch;  /* called as ctrun-launch */
    char *file_text; /* that values of the file of --config point into; owned */
    struct option_value values[OPTION_COUNT];
    const char
        *roles[OPTIONS_ROLES_MAX]; /* --role NAME=N:COMMAND, as typed; borrowed */
    int role_count;
    const char *role_restarts[OPTIONS_ROLES_MAX]; /* as typed; borrowed */
    int role_restarts_count;
    char **
        program; /* borrowed from argv: the program and its arguments, NULL at the end */
    int program_count;
};

/* Reads argv[0] for its name only, argv[1..] and the PET_ names of `env` (NULL-terminated "NAME=value").
 * 0, CTRUN_E_USAGE (a parser error: exit code 2), -EINVAL (bad value: exit code 1). */
int options_parse(struct options *out, int argc, char **argv, char *const *env,
                  struct ctrun_error *err);

/* One line of a file: takes effect where neither environment nor command line say something, and
 * is checked in any case. `text` is kept. CTRUN_E_USAGE: no such option, not one for a file, there
 * already, a bad value. */
int options_set_from_file(struct options *out, const char *name, const char *text,
                          int line, struct ctrun_error *err);
/* Frees what was read from a file. */
void options_deinit(struct options *options);

/* Python's int(). 0, -EINVAL, -ERANGE. */
int option_parse_int(const char *text, int64_t *out);
/* The value as text, "" when there is none. */
static inline const char *option_text(const struct options *options, enum option_id id)
{
    return options->values[id].text ? options->values[id].text : "";
}
/* True when the user said it: on the command line, by the environment or in a file. */
static inline bool option_is_given(const struct options *options, enum option_id id)
{
    return options->values[id].source != OPTION_FROM_DEFAULT;
}
/* The same, and it is not empty. */
static inline bool option_has_text(const struct options *options, enum option_id id)
{
    return option_is_given(options, id) && *option_text(options, id);
}

#endif
