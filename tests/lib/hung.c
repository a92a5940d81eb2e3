/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that does not answer, for LD_PRELOAD: calls with a path below the folder that
 * CTRUN_TEST_HUNG names do not return while the file "hung" is in it, nor does fsync() of a file
 * there. A path may begin with /proc/PID/root. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int is_hung(const char *path)
{
    const char *folder = getenv("CTRUN_TEST_HUNG");
    char mark[4096];
    size_t length;

    if (!folder || !path)
        return 0;
    if (strncmp(path, "/proc/", 6) == 0 && strstr(path, "/root"))
        path = strstr(path, "/root") + 5;
    if ((length = strlen(folder)) + 6 > sizeof mark ||
        strncmp(path, folder, length) != 0)
        return 0;
    memcpy(mark, folder, length);
    memcpy(mark + length, "/hung", 6);
    return syscall(SYS_faccessat, AT_FDCWD, mark, F_OK) == 0;
}

static void wait_for_ever(const char *path)
{
    while (is_hung(path))
        (void)usleep(10000);
}

EXPORT int fsync(int fd)
{
    char self[40], path[4096];
    ssize_t length;

    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    length = readlink(self, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    wait_for_ever(path);
    return (int)syscall(SYS_fsync, fd);
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    wait_for_ever(path);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

EXPORT int access(const char *path, int mode)
{
    wait_for_ever(path);
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    wait_for_ever(path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
