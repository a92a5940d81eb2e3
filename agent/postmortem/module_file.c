/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/module_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK
};

static int open_path(pid_t pid, const char *path)
{
    char full[PATH_MAX + 32];

    if (path[0] != '/' ||
        (pid ? ct_format(full, sizeof full, "/proc/%d/root%s", (int)pid, path)
             : ct_copy(full, sizeof full, path)) < 0) {
        errno = ENOENT;
        return -1;
    }
    return open(full, FLAGS);
}

/* The program of the process is there even if its file was removed or replaced. */
static int open_program(pid_t pid)
{
    char path[32];

    (void)ct_format(path, sizeof path, "/proc/%d/exe", (int)pid);
    return pid ? open(path, FLAGS) : -1;
}

/* Closes fd if it is another file. */
static bool is_it(int fd, uint64_t inode)
{
    struct stat info;

    if (fd < 0)
        return false;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == inode)
        return true;
    close(fd);
    return false;
}

int module_file_open(pid_t pid, const char *path, uint64_t inode)
{
    int fd = open_path(pid, path);
    const bool is_forbidden = fd < 0 && (errno == EACCES || errno == EPERM);

    if (is_it(fd, inode) || is_it(fd = open_program(pid), inode))
        return fd;
    return is_forbidden ? -EPERM : -ENOEXEC;
}

bool module_file_read(void *context, uint64_t offset, void *dst, size_t length)
{
    return offset <= INT64_MAX &&
           pread(*(const int *)context, dst, length, (off_t)offset) == (ssize_t)length;
}
