/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/module_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

static int open_path(pid_t pid, const char *path)
{
    char full[PATH_MAX + 32];

    if (path[0] != '/' ||
        (pid ? ct_format(full, sizeof full, "/proc/%d/root%s", (int)pid, path)
             : ct_copy(full, sizeof full, path)) < 0) {
        errno = ENOENT;
        return -1;
    }
    return open(full, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

int module_file_open(pid_t pid, const char *path, uint64_t inode)
{
    struct stat info;
    int fd = open_path(pid, path);

    if (fd < 0)
        return errno == EACCES || errno == EPERM ? -EPERM : -ENOEXEC;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == inode)
        return fd;
    close(fd);
    return -ENOEXEC;
}

bool module_file_read(void *context, uint64_t offset, void *dst, size_t length)
{
    return offset <= INT64_MAX &&
           pread(*(const int *)context, dst, length, (off_t)offset) == (ssize_t)length;
}
