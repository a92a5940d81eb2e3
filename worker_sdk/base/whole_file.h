/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, read and written whole; reads and writes that continue after a signal, until all bytes are done. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    CT_PIPE_WAIT_MS = 20000 /* for a program that writes a secret or a list to a pipe */
};

/* Reads a regular file of at most max_bytes; *text is NUL-terminated and owned by the caller, NULL
 * on failure. Never waits for a FIFO or a device. `info` may be NULL; it is set if rc is 0,
 * -EBADMSG or -EFBIG. 0, -errno, or -EBADMSG: no regular file; -EFBIG; -ENOMEM. */
int ct_whole_file_read(const char *path, size_t max_bytes, char **text, size_t *length,
                       struct stat *info);

/* Replaces the file by a new one with these bytes and mode 0600: written beside it under another
 * name and renamed, so that a reader finds the old file, no file, or the complete new one. Not
 * synced. 0, or -errno: the old file stays. */
int ct_whole_file_replace(const char *path, const void *data, size_t length);

/* 0 or -errno. */
int ct_write_all(int fd, const void *data, size_t length);
/* Up to `size` bytes; fewer at the end of the file. Their count or -errno. */
ssize_t ct_read_all(int fd, void *to, size_t size);
/* As ct_read_all(), of a descriptor with O_NONBLOCK: waits for the writers of a pipe or a terminal
 * up to wait_ms. -ETIMEDOUT: they have not come, or not ended, in that time. */
ssize_t ct_read_all_in(int fd, void *to, size_t size, uint64_t wait_ms);
/* Why it failed with CT_PIPE_WAIT_MS. */
const char *ct_read_all_fault(ssize_t rc);
