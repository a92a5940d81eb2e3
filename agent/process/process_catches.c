/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process_catches.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

bool process_catches(pid_t pid, int signal)
{
    static const char name[] = "\nSigCgt:";
    char path[32], text[4096]; /* the file has some 1500 bytes */
    const char *mask;
    ssize_t length;
    int fd;

    (void)ct_format(path, sizeof path, "/proc/%d/status", (int)pid);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    mask = strstr(text, name);
    return mask && strtoull(mask + sizeof name - 1, NULL, 16) >> (signal - 1) & 1;
}
