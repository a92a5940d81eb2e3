/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ctl/log_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    BLOCK_BYTES = 16 * 1024,
    RENAMED_MAX = 1000, /* --log-keep's maximum */
    TRIES = 1000,       /* while files are being renamed */
    PAUSE_NS = 1000 * 1000,
};

/* The offset after the `count`th '\n', counted backwards from `end`; 0: there are fewer. */
static off_t find_line(int fd, off_t end, int count)
{
    char block[BLOCK_BYTES];

    while (end > 0) {
        const off_t start = end > BLOCK_BYTES ? end - BLOCK_BYTES : 0;
        const ssize_t n = pread(fd, block, (size_t)(end - start), start);

        for (ssize_t at = n - 1; at >= 0; at--)
            if (block[at] == '\n' && --count == 0)
                return start + at + 1;
        end = n > 0 ? start : 0; /* n <= 0: the file was truncated */
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
        /* The last line's own '\n' is not counted. */
        if (pread(fd, &last, 1, at - 1) == 1 && last == '\n')
            at--;
        at = find_line(fd, at, count);
    }
    return lseek(fd, at, SEEK_SET) < 0 ? -errno : 0;
}

/* O_NONBLOCK: a name that an agent has sent may be a FIFO, and open() must not wait. */
static int open_now(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    return fd >= 0 ? fd : -errno;
}

/* Checks type and owner before the file is really opened: opening alone starts some devices. */
static int open_of(const char *path, uid_t owner)
{
    const int place = open(path, O_PATH | O_CLOEXEC);
    char self[40];
    struct stat info;
    int fd;

    if (place < 0)
        return -errno;
    (void)ct_format(self, sizeof self, "/proc/self/fd/%d", place);
    if (fstat(place, &info) < 0)
        fd = -errno;
    else
        fd = S_ISREG(info.st_mode) && info.st_uid == owner ? open_now(self) : -EPERM;
    close(place);
    return fd;
}

static int open_file(const char *path, uid_t owner)
{
    return owner == LOG_FOLLOW_ANYBODY ? open_now(path) : open_of(path, owner);
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

static bool is_at(const struct stat *open, const char *path, int number)
{
    char name[PATH_MAX];
    struct stat info;

    return format_renamed(name, path, number) >= 0 && stat(name, &info) == 0 &&
           is_same(open, &info);
}

static bool is_there(const char *path, int number)
{
    char name[PATH_MAX];
    struct stat info;

    return format_renamed(name, path, number) >= 0 && stat(name, &info) == 0;
}

/* The number of the file `open`; 0: the file is gone, and *oldest is the highest number; -EAGAIN: a
 * rotation is going on. The scan is not atomic: a missing number below an existing one means that
 * files are being renamed just now, and the caller waits. */
static int find_own(const struct stat *open, const char *path, int *oldest)
{
    int i = 1;

    for (; i <= RENAMED_MAX && is_there(path, i); i++)
        if (is_at(open, path, i))
            return i;
    *oldest = i - 1;
    return is_there(path, i + 1) ? -EAGAIN : 0;
}

/* Opens the file after `open`, or the oldest file if `open` is gone. A rotation only increases the
 * numbers, the highest first. So if `open` still has its number after the next file was opened, the
 * opened file was the next one. */
static int open_next(const struct stat *open, const char *path, uid_t owner)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    char name[PATH_MAX];

    for (int tries = 0; tries < TRIES; tries++) {
        int oldest = 0;
        const int own = find_own(open, path, &oldest);
        int fd;

        if (own < 0) { /* wait for the renaming process */
            (void)nanosleep(&pause, NULL);
            continue;
        }
        if (format_renamed(name, path, own ? own - 1 : oldest) < 0)
            return -ENAMETOOLONG;
        fd = open_file(name, owner);
        if (fd >= 0 && (own == 0 || is_at(open, path, own)))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -ENOENT;
}

int log_follow_next(int *fd, const char *path, uid_t owner)
{
    struct stat open;
    struct stat newest;
    int next;

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
        /* A renamed file does not grow any more; but it may have grown since the last read. */
        if (fstat(*fd, &open) == 0 && open.st_size > lseek(*fd, 0, SEEK_CUR))
            return 1;
    }
    next = *fd >= 0 ? open_next(&open, path, owner) : open_file(path, owner);
    if (next < 0)
        return next == -ENOENT ? 0 : next;
    if (*fd >= 0)
        close(*fd);
    *fd = next;
    return 1;
}
