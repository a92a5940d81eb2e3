/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"

enum {
    COPY_PIECE_BYTES = 1024 * 1024
};

struct parts {
    const struct iovec *list;
    size_t count;
};

/* Writes what `source` is into fd. 0 or -errno. */
typedef int fill_fn(int fd, const void *source);

/* The directory part of path, "." when it has none. */
static void directory_of(char directory[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    (void)ct_format(directory, PATH_MAX, "%.*s", slash ? (int)(slash - path + 1) : 1,
                    slash ? path : ".");
}

/* Opens a file without a name, which disappears when we die before naming it; -1 where the file
 * system has none. */
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
    (void)unlink(path); /* of a thread that had our number and died */
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int fill_parts(int fd, const void *source)
{
    const struct parts *parts = source;
    int rc = 0;

    for (size_t i = 0; i < parts->count && rc == 0; i++)
        rc = ct_write_all(fd, parts->list[i].iov_base, parts->list[i].iov_len);
    return rc;
}

static bool may_go_on(const struct ct_durable_source *source)
{
    return !source->may_go_on || source->may_go_on(source->context);
}

/* Copies one piece at `at`, through `room`. Returns its bytes, or -errno. */
static ssize_t copy_piece(int fd, const struct ct_durable_source *source, uint64_t at,
                          void *room)
{
    const uint64_t left = source->length - at;
    const ssize_t n = pread(source->fd, room,
                            left < COPY_PIECE_BYTES ? (size_t)left : COPY_PIECE_BYTES,
                            (off_t)at);
    int rc;

    if (n <= 0)
        return n < 0 ? -errno : -EBADMSG;
    rc = ct_write_all(fd, room, (size_t)n);
    return rc < 0 ? rc : n;
}

/* Sums exactly the bytes that it writes. */
static int fill_copy(int fd, const void *from)
{
    const struct ct_durable_source *source = from;
    void *room = malloc(COPY_PIECE_BYTES);
    uint32_t crc = 0;
    ssize_t n = room ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < source->length && n >= 0; at += (uint64_t)n) {
        if (!may_go_on(source))
            n = -ECANCELED;
        else if ((n = copy_piece(fd, source, at, room)) > 0)
            crc = ct_crc32c(crc, room, (size_t)n);
        if (n < 0)
            break;
    }
    free(room);
    return n < 0 ? (int)n : crc == source->crc ? 0 : -EBADMSG;
}

static int write_file(const char *path, fill_fn *fill, const void *source)
{
    int fd = open_nameless(path);
    bool is_nameless = fd >= 0;
    int rc = 0;

    if (!is_nameless)
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -errno;
    rc = fill(fd, source);
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

/* Root could replace a device by a file: /dev/null would be one for all programs. */
int ct_durable_check_old(int folder, const char *path, const char *name,
                         struct ctrun_error *err)
{
    struct stat st;

    if (fstatat(folder, path, &st, 0) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return 0; /* rename() refuses a directory */
    return ct_fail(err, -EINVAL, "%s is no regular file, and is not replaced by one",
                   name);
}

/* `name`: of the file, in errors. */
static int replace(const char *path, const char *name, fill_fn *fill,
                   const void *source, const struct ct_durable_source *asks,
                   struct ctrun_error *err)
{
    const int own = (int)syscall(SYS_gettid);
    char temporary[PATH_MAX], directory[PATH_MAX];
    int rc;

    /* Of this thread alone: the agent gives up a thread that writes too long, and writes the next
     * checkpoint of that name on another one. */
    if (ct_format(temporary, sizeof temporary, "%s.tmp-%d", path, own) < 0)
        return ct_fail(err, -ENAMETOOLONG, "the name is too long");
    if ((rc = ct_durable_check_old(AT_FDCWD, path, name, err)) < 0)
        return rc;
    rc = write_file(temporary, fill, source);
    if (rc == 0 && asks && !may_go_on(asks))
        rc = -ECANCELED;
    if (rc < 0) {
        (void)unlink(temporary); /* may not exist; what failed is reported */
        return ct_fail(err, rc, "write %s.tmp-%d: %s", name, own,
                       rc == -EBADMSG ? "its bytes were changed meanwhile"
                                      : strerror(-rc));
    }
    if (rename(temporary, path) < 0) {
        rc = -errno;
        (void)unlink(temporary);
        return ct_fail(err, rc, "rename %s.tmp-%d: %s", name, own, strerror(-rc));
    }
    directory_of(directory, path);
    if ((rc = ct_durable_sync_directory(directory)) < 0) {
        directory_of(directory, name);
        return ct_fail(err, rc, "sync %s: %s", directory, strerror(-rc));
    }
    return 0;
}

int ct_durable_write(const char *path, const struct iovec *parts, size_t count,
                     struct ctrun_error *err)
{
    const struct parts all = {parts, count};

    return replace(path, path, fill_parts, &all, NULL, err);
}

int ct_durable_copy(const char *path, const struct ct_durable_source *source,
                    struct ctrun_error *err)
{
    return replace(path, source->name ? source->name : path, fill_copy, source, source,
                   err);
}
