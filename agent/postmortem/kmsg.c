/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    RECORD_MAX_BYTES = 8192, /* a shorter buffer makes the kernel refuse the record */
    RECORDS_MAX = 100000,    /* a log that grows while we read it must end */
    CLOCK_SLACK_MS = 1000    /* the log's clock is not quite the monotonic one */
};

/* A record is "priority,sequence,microseconds,flags;text". The time keeps an older process with
 * the same pid out. */
bool kmsg_is_kill(const char *record, pid_t pid, uint64_t since_ms, const char **text)
{
    unsigned long long us;
    char mark[48];

    if (sscanf(record, "%*u,%*u,%llu,", &us) != 1 ||
        us / 1000 + CLOCK_SLACK_MS < since_ms || !(*text = strchr(record, ';')))
        return false;
    ++*text;
    (void)ct_format(mark, sizeof mark, "Killed process %d (", (int)pid);
    return strstr(*text, mark) != NULL;
}

/* The first PID namespace has this inode in every kernel. */
static bool is_first_namespace(void)
{
    char name[64];
    const ssize_t n = readlink("/proc/self/ns/pid", name, sizeof name - 1);

    name[n > 0 ? n : 0] = '\0';
    return strcmp(name, "pid:[4026531836]") == 0;
}

bool kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms)
{
    char record[RECORD_MAX_BYTES];
    const uint64_t suspended_ms = ct_suspended_ms(); /* its clock stood still */
    bool is_found = false;
    const int fd = is_first_namespace()
                       ? open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                       : -1;

    since_ms -= suspended_ms < since_ms ? suspended_ms : since_ms;
    for (int i = 0; fd >= 0 && i < RECORDS_MAX && !is_found; i++) {
        const ssize_t n = read(fd, record, sizeof record - 1);
        const char *text;

        if (n < 0 && errno == EPIPE)
            continue; /* overwritten meanwhile: the next one is there */
        if (n <= 0)
            break;
        record[n] = '\0';
        record[strcspn(record, "\n")] = '\0'; /* key=value lines follow */
        is_found = kmsg_is_kill(record, pid, since_ms, &text) &&
                   ct_format(dst, size, "%.150s", text) >= 0;
    }
    if (fd >= 0)
        close(fd);
    return is_found;
}
