/* SPDX-License-Identifier: Apache-2.0 */
/* Error files, read and written.
 *
 * A worker that fails may leave {"message": {"message": "ValueError: boom", "extraInfo":
 * {"py_callstack": "...", "timestamp": "1795255662", "ctrun_error": -20008}}}, or the flat form
 * with "message" a text and "timestamp" beside it. A broken file does not stop the launcher: the
 * last file of a failing program is often broken. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/base/error.h"

struct json_error_file {
    char *message;   /* "ValueError: boom"; owned */
    char *callstack; /* NULL when absent; owned */
    int error;       /* CTRUN_E_* of ctrun_fail_worker(); 0 when absent */
};

/* 1 when read, 0 when there is none, -EBADMSG when it is no error file (or empty), -EFBIG,
 * -errno. deinit accepts a zeroed struct. */
int json_error_file_read(const char *path, struct json_error_file *out);
void json_error_file_deinit(struct json_error_file *file);

/* Writes the launcher's own error file (a scheduler gave its path): a copy of a worker's, with
 * message.errorCode added where message is an object, and without secrets where `redacts` is
 * set. 0 or a code. */
int json_error_file_copy(const char *from, const char *to, int error_code, bool redacts,
                         struct ctrun_error *err);
/* Writes that file for an error of the launcher, in the first form. */
int json_error_file_write(const char *path, const char *message,
                          struct ctrun_error *err);
