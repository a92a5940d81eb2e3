/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process_name.h"

#include <ctype.h>
#include <string.h>

#include "worker_sdk/base/small_file.h"

char *process_name(char dst[PROCESS_NAME_MAX], pid_t pid)
{
    *dst = '\0';
    if (pid > 0)
        (void)ct_small_file_of(dst, PROCESS_NAME_MAX, pid, 0, "comm");
    dst[strcspn(dst, "\n")] = '\0';
    for (char *at = dst; *at; at++)
        if (!isgraph((unsigned char)*at)) /* a process may give itself any name */
            *at = '?';
    return dst;
}
