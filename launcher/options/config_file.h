/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of a file of settings: one `name = value` a line.
 *
 *     line   = [ name "=" value ] [ "#" comment ]     blanks around each part are ignored
 *     name   = 1*( letter / digit / "-" / "_" )
 *     value  = plain / '"' quoted '"' / "'" anything but "'" "'"
 *     plain  = text without blanks; "#" begins a comment only after a blank
 *     quoted = in it \" and \\ stand for " and \, any other backslash for itself
 *
 * A value ends with its line. A byte order mark at the start is skipped. This module does not
 * know what the names mean. Pure. */
#pragma once

#include <stddef.h>

#include "worker_sdk/base/error.h"

struct config_file {
    char *at;
    char *end;
    int line; /* of `at`, from 1 */
};

struct config_file_entry {
    const char *name; /* both borrowed from the text */
    const char *value;
    int line;
};

/* text[length] must be 0. The text is kept, and changed while it is read. */
void config_file_init(struct config_file *file, char *text, size_t length);
/* 1 and the next entry; 0 at the end; CTRUN_E_USAGE, and file->line is the line that is wrong. */
int config_file_next(struct config_file *file, struct config_file_entry *out,
                     struct ctrun_error *err);
