/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process_name.h"

#include <ctype.h>
#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

char *process_name(char dst[PROCESS_NAME_MAX], pid_t pid)
{
    char path[32];

    (void)ct_format(path, sizeof path, "/proc/%d/comm", (int)pid);
    *dst = '\0';
    if (pid > 0)
        (void)ct_small_file_line(dst, PROCESS_NAME_MAX, path);
    for (char *at = dst; *at; at++)
        if (!isgraph((unsigned char)*at)) /* it may call itself anything */
            *at = '?';
    return dst;
}
