/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

static int write_whole(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        ssize_t n = write(fd, at, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        length -= (size_t)n;
    }
    return 0;
}

/* The directory part of path, "." when it has none. */
static void directory_of(char directory[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    (void)ct_format(directory, PATH_MAX, "%.*s", slash ? (int)(slash - path + 1) : 1,
                    slash ? path : ".");
}

/* A file that dies with us until it is named; -1 where there is no such thing. */
static int open_nameless(const char *path)
{
    char directory[PATH_MAX];

    if (access("/proc/self/fd", X_OK) < 0) /* needed to name it */
        return -1;
    directory_of(directory, path);
    return open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

static int give_name(int fd, const char *path)
{
    char self[64];

    (void)ct_format(self, sizeof self, "/proc/self/fd/%d", fd);
    (void)unlink(path); /* of a process that had our pid and died */
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int write_file(const char *path, const struct iovec *parts, size_t count)
{
    int fd = open_nameless(path);
    bool is_nameless = fd >= 0;
    int rc = 0;

    if (!is_nameless)
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -errno;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = write_whole(fd, parts[i].iov_base, parts[i].iov_len);
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    if (rc == 0 && is_nameless)
        rc = give_name(fd, path);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

int ct_durable_sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0 && errno != EINVAL) /* some file systems cannot, and need not */
        rc = -errno;
    close(fd);
    return rc;
}

int ct_durable_write(const char *path, const struct iovec *parts, size_t count,
                     struct ctrun_error *err)
{
    char temporary[PATH_MAX], directory[PATH_MAX];
    int rc;

    if (ct_format(temporary, sizeof temporary, "%s.tmp-%d", path, (int)getpid()) < 0)
        return ct_fail(err, -ENAMETOOLONG, "the name is too long");
    if ((rc = write_file(temporary, parts, count)) < 0) {
        (void)unlink(temporary); /* may not exist; what failed is told */
        return ct_fail(err, rc, "write %s: %s", temporary, strerror(-rc));
    }
    if (rename(temporary, path) < 0) {
        rc = -errno;
        (void)unlink(temporary);
        return ct_fail(err, rc, "rename %s: %s", temporary, strerror(-rc));
    }
    directory_of(directory, path);
    if ((rc = ct_durable_sync_directory(directory)) < 0)
        return ct_fail(err, rc, "sync its directory: %s", strerror(-rc));
    return 0;
}
