/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/log_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    BLOCK_BYTES = 16 * 1024,
    RENAMED_MAX = 1000 /* --log-keep's maximum */
};

/* The offset behind the `count`th '\n' from `end` backwards; 0: there are fewer. */
static off_t find_line(int fd, off_t end, int count)
{
    char block[BLOCK_BYTES];

    while (end > 0) {
        const off_t start = end > BLOCK_BYTES ? end - BLOCK_BYTES : 0;
        const ssize_t n = pread(fd, block, (size_t)(end - start), start);

        for (ssize_t at = n - 1; at >= 0; at--)
            if (block[at] == '\n' && --count == 0)
                return start + at + 1;
        end = n > 0 ? start : 0; /* it was emptied just now */
    }
    return 0;
}

int log_follow_tail(int fd, int count)
{
    struct stat info;
    off_t at;
    char last;

    if (fstat(fd, &info) < 0)
        return -errno;
    at = info.st_size;
    if (at > 0 && count > 0) {
        /* The end of the last line begins no other. */
        if (pread(fd, &last, 1, at - 1) == 1 && last == '\n')
            at--;
        at = find_line(fd, at, count);
    }
    return lseek(fd, at, SEEK_SET) < 0 ? -errno : 0;
}

/* A name that an agent gave us must not make us wait, whatever lies there. */
static int open_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    return fd >= 0 ? fd : -errno;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int format_renamed(char *dst, const char *path, int number)
{
    return number == 0 ? ct_copy(dst, PATH_MAX, path)
                       : ct_format(dst, PATH_MAX, "%s.%d", path, number);
}

/* The number of the file that comes after `open`: one less than its own, or that of the
 * oldest when its own is gone. */
static int find_next(const struct stat *open, const char *path)
{
    char name[PATH_MAX];
    struct stat info;

    for (int i = 1; i <= RENAMED_MAX; i++) {
        if (format_renamed(name, path, i) < 0 || stat(name, &info) < 0)
            return i - 1;
        if (is_same(open, &info))
            return i - 1;
    }
    return 0;
}

int log_follow_next(int *fd, const char *path)
{
    char name[PATH_MAX];
    struct stat open;
    struct stat newest;
    int next = 0;

    if (*fd >= 0) {
        if (fstat(*fd, &open) < 0)
            return -errno;
        if (stat(path, &newest) < 0)
            return errno == ENOENT ? 0 : -errno; /* between two names */
        if (is_same(&open, &newest)) {
            if (open.st_size >= lseek(*fd, 0, SEEK_CUR))
                return 0;
            return lseek(*fd, 0, SEEK_SET) < 0 ? -errno : 1;
        }
        next = find_next(&open, path);
    }
    if (format_renamed(name, path, next) < 0)
        return -ENAMETOOLONG;
    next = open_file(name);
    if (next < 0)
        return next == -ENOENT ? 0 : next;
    if (*fd >= 0)
        close(*fd);
    *fd = next;
    return 1;
}
