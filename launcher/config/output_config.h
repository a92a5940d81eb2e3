/* SPDX-License-Identifier: Apache-2.0 */
/* Where the workers' output goes, and what they read: terminal, files, filters, prefixes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/config/run_config.h"
#include "launcher/options/option.h"
#include "launcher/options/streams.h"

/* The values of stdin_rank that are no rank. */
enum config_stdin {
    CONFIG_STDIN_ALL = -1,
    CONFIG_STDIN_NONE = -2,
};

enum {
    CONFIG_FILTERS_MAX = 64
};

struct output_config {
    struct streams streams;
    int stdin_rank;      /* the only one that reads standard input, or CONFIG_STDIN_* */
    const char *log_dir; /* NULL: a new one in the temporary directory */
    bool has_no_files;   /* --log-dir /dev/null */
    const char *prefix_template;
    bool paints_out; /* prefixes in colour: each stream's terminal decides */
    bool paints_err;
    bool has_table;         /* --summary: torchrun's table follows the cause */
    bool has_whole_table;   /* with the ranks that we stopped */
    bool uses_pty;          /* --pty */
    bool redacts;           /* hides secrets in quoted output */
    bool collapses;         /* merges equal lines of workers */
    uint64_t log_max_bytes; /* of one log file; 0: no limit */
    int log_keep;
    uint64_t
        rate_limit; /* of a worker's lines on the console, bytes a second; 0: none */
    char *out_filters[CONFIG_FILTERS_MAX + 1]; /* owned, NULL at the end */
    char *err_filters[CONFIG_FILTERS_MAX + 1];
    bool prints_torch_events; /* --event-log-handler=console */
};

/* Texts of `options` are kept. 0 or a code, as config_resolve(). */
int output_config_resolve(struct output_config *out, const struct options *options,
                          char *const *env, const struct run_config *run,
                          struct ctrun_error *err);
void output_config_deinit(struct output_config *config);
