/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process_name.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

char *process_name(char dst[PROCESS_NAME_MAX], pid_t pid)
{
    char path[32];
    ssize_t length = 0;
    int fd;

    (void)ct_format(path, sizeof path, "/proc/%d/comm", (int)pid);
    if (pid > 0 && (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
        length = read(fd, dst, PROCESS_NAME_MAX - 1);
        close(fd);
    }
    dst[length > 0 ? length : 0] = '\0';
    for (char *at = dst; *at; at++)
        if (!isgraph((unsigned char)*at)) /* it may call itself anything */
            *at = *at == '\n' ? '\0' : '?';
    return dst;
}
