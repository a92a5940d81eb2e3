/* SPDX-License-Identifier: Apache-2.0 */
/* --config: options from a file. It is read behind the command line and the environment, which
 * win; a file without errors prints nothing. */
#pragma once

#include "launcher/options/option.h"

enum {
    OPTION_FILE_MAX_BYTES = 64 * 1024 /* each option once, and a lot to say about it */
};

/* Reads the file that --config names, if it does. 0, or CTRUN_E_USAGE or -ENOMEM with file and
 * line. */
int option_file_load(struct options *options, struct ctrun_error *err);
/* The same for a text in memory, which is `path` for people; kept and changed. Pure. */
int option_file_apply(struct options *options, const char *path, char *text,
                      size_t length, struct ctrun_error *err);

/* Puts file and line in front of a sentence about an option whose value the file has. */
void option_file_blame(const struct options *options, struct ctrun_error *err);

/* argv with what the file has set in front of it, for a machine that may not have the file. A
 * new list, all of it owned by the caller: ct_str_list_free(); NULL: out of memory. */
char **option_file_argv(const struct options *options, char *const *argv);
