/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

int ct_write_all(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        const ssize_t n = write(fd, at, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        length -= (size_t)n;
    }
    return 0;
}

ssize_t ct_read_all(int fd, void *to, size_t size)
{
    size_t length = 0;

    while (length < size) {
        const ssize_t n = read(fd, (char *)to + length, size - length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        length += (size_t)n;
    }
    return (ssize_t)length;
}

ssize_t ct_read_all_in(int fd, void *to, size_t size, uint64_t wait_ms)
{
    const uint64_t deadline_ms = ct_deadline_ms(wait_ms);
    size_t length = 0;

    while (length < size) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&ready, 1, ct_left_ms(deadline_ms));

        if (n == 0)
            return -ETIMEDOUT;
        if (n > 0 && (n = read(fd, (char *)to + length, size - length)) == 0)
            break;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        length += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)length;
}

const char *ct_read_all_fault(ssize_t rc)
{
    return rc == -ETIMEDOUT ? "a pipe, and nobody has written it to its end in 20 s"
                            : strerror((int)-rc);
}

int ct_whole_file_replace(const char *path, const void *data, size_t length)
{
    char beside[PATH_MAX];
    int rc;
    int fd;

    if (ct_format(beside, sizeof beside, "%s.XXXXXX", path) < 0)
        return -ENAMETOOLONG;
    if ((fd = mkostemp(beside, O_CLOEXEC)) < 0)
        return -errno;
    rc = ct_write_all(fd, data, length);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(beside, path) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlink(beside); /* nothing else can be done about it */
    return rc;
}

int ct_whole_file_read(const char *path, size_t max_bytes, char **text, size_t *length,
                       struct stat *info)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat own;
    ssize_t n = 0;
    int rc = 0;

    *text = NULL;
    *length = 0;
    if (fd < 0)
        return -errno;
    if (!info)
        info = &own;
    if (fstat(fd, info) < 0)
        rc = -errno;
    else if (!S_ISREG(info->st_mode))
        rc = -EBADMSG;
    else if ((size_t)info->st_size > max_bytes)
        rc = -EFBIG;
    else if (!(*text = ct_zalloc((size_t)info->st_size + 1)))
        rc = -ENOMEM;
    else if ((n = ct_read_all(fd, *text, (size_t)info->st_size)) < 0)
        rc = (int)n;
    else
        *length = (size_t)n; /* it may have become shorter */
    close(fd);
    if (rc < 0) {
        free(*text);
        *text = NULL;
    }
    return rc;
}
