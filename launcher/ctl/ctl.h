/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl: each verb is a struct; the parser, --help and the nearest known word use these structs.
 *
 *     ctrunctl VERB [options] [words]
 *
 * Exit codes: 0 success; 1 the request or a check failed; 2 the command line is wrong. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "worker_sdk/base/error.h"

enum {
    CTL_OPTIONS_MAX = 8,
    CTL_WORDS_MAX = 4
};

struct ctl_option {
    const char *name;  /* without dashes; NULL ends a table */
    char letter;       /* 0: none */
    const char *value; /* placeholder; NULL: a flag */
    const char *env;   /* NULL: none */
    const char *help;
};

struct ctl_call;

struct ctl_verb {
    const char *name;
    const char *words; /* placeholder of its words; "" when it takes none */
    int word_min;
    int word_max;
    bool
        takes_command; /* its words are a command line: no option of ours after the first word */
    bool takes_negative; /* -1 is a word, not an option */
    const char *help;
    const struct ctl_option *options;
    const char
        *choices; /* its first words, separated by blanks; NULL when there is no list */
    int (*run)(const struct ctl_call *call); /* returns the exit code */
};

extern const struct ctl_verb ctl_explain, ctl_kv, ctl_why, ctl_stacks;
extern const struct ctl_verb ctl_reload, ctl_resize, ctl_drain, ctl_restart;
extern const struct ctl_verb ctl_status, ctl_signal, ctl_stop, ctl_logs, ctl_doctor;
extern const struct ctl_verb ctl_install, ctl_chaos;

/* One command line, parsed; everything is borrowed from argv and the environment. */
struct ctl_call {
    const struct ctl_verb *verb;
    const char
        *values[CTL_OPTIONS_MAX]; /* by the verb's table; NULL: not given; a flag: "" */
    const char *words[CTL_WORDS_MAX];
    int word_count;
    char **command; /* with takes_command: the words, NULL at the end */
    bool wants_help;
};

/* Options that several verbs have. */
#define CTL_RUN                                                                        \
    {                                                                                  \
        .name = "run", .value = "ID|PID", .env = "CTRUNCTL_RUN",                       \
        .help = "the run, by its id or the pid of its ctrun; needed when there are "   \
                "several"                                                              \
    }
#define CTL_USER                                                                       \
    {                                                                                  \
        .name = "user", .value = "USER", .env = "CTRUNCTL_USER",                       \
        .help = "look for the runs of this user, a name or a number (root only)"       \
    }
#define CTL_JSON                                                                       \
    {                                                                                  \
        .name = "json", .help = "answer in JSON"                                       \
    }
/* They end the table of a verb that is of a run. */
#define CTL_OF_RUN                                                                     \
    CTL_RUN, CTL_USER, CTL_JSON,                                                       \
    {                                                                                  \
        0                                                                              \
    }
#define CTL_RANK                                                                       \
    {                                                                                  \
        .name = "rank", .value = "N", .help = "this worker only, by its global rank"   \
    }
#define CTL_REASON                                                                     \
    {                                                                                  \
        .name = "reason", .value = "TEXT",                                             \
        .help = "sent to the workers and written to the log"                           \
    }

/* Parses the words after the verb. 0 or CTRUN_E_USAGE. Pure except for getenv(). */
int ctl_parse(struct ctl_call *out, const struct ctl_verb *verb, int argc, char **argv,
              struct ctrun_error *err);
/* The value of option `name` of the verb: NULL when not given. */
const char *ctl_value(const struct ctl_call *call, const char *name);
/* The value as a number >= 0; -1 when not given. 0 or CTRUN_E_USAGE. */
int ctl_number(const struct ctl_call *call, const char *name, int *out,
               struct ctrun_error *err);
void ctl_print_help(FILE *out, const struct ctl_verb *verb);
/* The word of `words` (NULL at the end) that is closest to `word`; NULL when none is close. */
const char *ctl_nearest(const char *word, const char *const *words);

/* Prints a completion script; verbs ends with NULL, shell may be NULL. The exit code. */
int ctl_completion_print(const struct ctl_verb *const *verbs, const char *shell);
/* Prints the error on stderr; returns its exit code. */
int ctl_fail(const struct ctrun_error *err);
/* ctrunctl as a function, like main_ctrun() of launcher/main.h. */
int ctl_main(int argc, char **argv);
