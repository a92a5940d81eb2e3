/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

/* Until the end of the file or of text[size]. 0 or -errno. */
static int read_until(int fd, char *text, size_t size, size_t *length)
{
    while (*length < size) {
        const ssize_t n = read(fd, text + *length, size - *length);

        if (n < 0)
            return -errno;
        if (n == 0)
            break; /* it became shorter */
        *length += (size_t)n;
    }
    return 0;
}

int ct_whole_file_replace(const char *path, const void *data, size_t length)
{
    char beside[PATH_MAX];
    ssize_t n;
    int rc = 0;
    int fd;

    if (ct_format(beside, sizeof beside, "%s.XXXXXX", path) < 0)
        return -ENAMETOOLONG;
    if ((fd = mkostemp(beside, O_CLOEXEC)) < 0)
        return -errno;
    n = write(fd, data, length);
    if (n != (ssize_t)length)
        rc = n < 0 ? -errno : -ENOSPC;
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
    else
        rc = read_until(fd, *text, (size_t)info->st_size, length);
    close(fd);
    if (rc < 0) {
        free(*text);
        *text = NULL;
    }
    return rc;
}
