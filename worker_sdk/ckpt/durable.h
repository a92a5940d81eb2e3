/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are complete or absent after a crash of the process or of the machine.
 *
 * The bytes go into a file without a name in the same directory, fsync, a temporary name, rename, fsync
 * of the directory. A failure at any step leaves the old file and no temporary one, and so does SIGKILL
 * while bytes are written. A file system without nameless files (NFS) gets the temporary name at once.
 * All of it blocks on the disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "worker_sdk/include/ctrun.h"

/* Replaces the file at path by these parts, one behind the other. 0 or a negative errno; -EINVAL: there is a
 * device, a FIFO or a socket. */
int ct_durable_write(const char *path, const struct iovec *parts, size_t count,
                     struct ctrun_error *err);
/* Bytes that another process may still change: a copy that does not match their sum is never
 * named. */
struct ct_durable_source {
    int fd; /* read from its beginning by pread() */
    uint64_t length;
    uint32_t crc;     /* CRC-32C */
    const char *name; /* of the file, in errors. NULL: the path. */
    /* Called about every MiB and right before the file is named; false ends the copy with
     * -ECANCELED. NULL: always true. */
    bool (*may_go_on)(void *context);
    void *context;
};
/* The same with one part. -EBADMSG: the source is shorter, or its sum is another. */
int ct_durable_copy(const char *path, const struct ct_durable_source *source,
                    struct ctrun_error *err);
/* -EINVAL if what is at `path`, seen from `folder`, must not be replaced by a file: a device, a FIFO or a socket.
 * `name`: of it, in the error. */
int ct_durable_check_old(int folder, const char *path, const char *name,
                         struct ctrun_error *err);
/* Fsyncs the directory, so that new names in it survive a crash. 0 or -errno. */
int ct_durable_sync_directory(const char *directory);
