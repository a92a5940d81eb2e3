/* SPDX-License-Identifier: Apache-2.0 */
/* --config: options from a file. It is read after the command line and the environment, which
 * override it; a file without errors prints nothing. */
#pragma once

#include "launcher/options/option.h"

enum {
    OPTION_FILE_MAX_BYTES = 64 * 1024 /* every option once, and long comments */
};

/* Reads the file that --config names, if it does. 0, or CTRUN_E_USAGE or -ENOMEM with file and
 * line. */
int option_file_load(struct options *options, struct ctrun_error *err);
/* The same for a text in memory, which messages call `path`. The text is kept and changed. Pure. */
int option_file_apply(struct options *options, const char *path, char *text,
                      size_t length, struct ctrun_error *err);

/* Puts file and line in front of an error about an option that the file has set. */
void option_file_blame(const struct options *options, struct ctrun_error *err);

/* A copy of argv with the file's options in front of the others, for a machine that may not have
 * the file. The caller frees all of it: ct_str_list_free(). NULL: out of memory. */
char **option_file_argv(const struct options *options, char *const *argv);
