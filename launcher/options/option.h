/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table of options, and the parser that reads it as argparse
 * would.
 *
 * torchrun's grammar is kept exactly, because scripts depend on it: both
 * spellings of a name (--nproc-per-node, --nproc_per_node), any unambiguous prefix (the
 * two spellings count as two names), -r3, -r=3, clusters such as -mt3, everything
 * after the first word that is no option belongs to the program. A default may come
 * from the environment (PET_NNODES), and else from the file of --config: option_file.h.
 *
 * Called by the name ctrun-launch the program has torch.distributed.launch's grammar:
 * the same, and --use-env.
 *
 * Parser, --help, completion and a test of the man page all read option_table. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/options/option_table.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum option_source {
    OPTION_FROM_DEFAULT,
    OPTION_FROM_FILE,
    OPTION_FROM_ENV,
    OPTION_TYPED,
};

struct option_value {
    enum option_source source;
    int line; /* of the --config file that sets it, even if overridden; 0: none */
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
    char *file_text; /* owned; values of the --config file point into it */
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

/* One line of a file: takes effect unless the environment or the command line sets the option;
 * always checked. `text` is kept. CTRUN_E_USAGE: no such option, one not allowed in a file, set
 * twice, or a bad value. */
int options_set_from_file(struct options *out, const char *name, const char *text,
                          int line, struct ctrun_error *err);
/* Frees the text that was read from a file. */
void options_deinit(struct options *options);

/* The value as text, "" when there is none. */
static inline const char *option_text(const struct options *options, enum option_id id)
{
    return options->values[id].text ? options->values[id].text : "";
}
/* True when the user set it: on the command line, by the environment or in a file. */
static inline bool option_is_given(const struct options *options, enum option_id id)
{
    return options->values[id].source != OPTION_FROM_DEFAULT;
}
/* The same, and it is not empty. */
static inline bool option_has_text(const struct options *options, enum option_id id)
{
    return option_is_given(options, id) && *option_text(options, id);
}
