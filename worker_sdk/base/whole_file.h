/* SPDX-License-Identifier: Apache-2.0 */
/* A small file, read whole. */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

/* Reads a regular file of at most max_bytes; *text is NUL-terminated and owned by the caller, NULL
 * on failure. A FIFO or a device in its place does not make us wait. `info` may be NULL; it is
 * the file's when rc is 0, -EBADMSG or -EFBIG.
 * 0, -errno, or -EBADMSG: no regular file; -EFBIG; -ENOMEM. */
int ct_whole_file_read(const char *path, size_t max_bytes, char **text, size_t *length,
                       struct stat *info);

/* Puts a file with these bytes and mode 0600 in the place of what is there: written beside it under a name of its own and
 * renamed, so that a reader finds the old one, none, or the whole new one. Not synced. 0 or -errno; then the old one
 * stays. */
int ct_whole_file_replace(const char *path, const void *data, size_t length);
