/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

ssize_t ct_small_file_read(char *dst, size_t size, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, dst, size - 1);
    const int why = errno;

    dst[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return n < 0 ? -why : n;
}

ssize_t ct_small_file_line(char *dst, size_t size, const char *path)
{
    const ssize_t n = ct_small_file_read(dst, size, path);

    if (n < 0)
        return n;
    dst[strcspn(dst, "\n")] = '\0';
    return (ssize_t)strlen(dst);
}

uint64_t ct_small_file_started(pid_t pid)
{
    enum {
        NAME_FIELD = 2,
        START_FIELD = 22
    };
    char path[40];
    char stat[1024];
    const char *at;

    (void)ct_format(path, sizeof path, "/proc/%d/stat", (int)pid);
    (void)ct_small_file_read(stat, sizeof stat, path);
    at = strrchr(stat, ')'); /* the name may hold blanks and brackets */
    for (int field = NAME_FIELD; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

bool ct_small_file_has_ended(pid_t pid, uint64_t started)
{
    uint64_t now;

    if (kill(pid, 0) < 0 && errno == ESRCH)
        return true;
    now = ct_small_file_started(pid);
    return now != 0 && now != started;
}

uint64_t ct_small_file_pid_namespace(void)
{
    struct stat status;

    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}
