/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    /* with a shorter buffer the kernel does not return the record */
    RECORD_MAX_BYTES = 8192,
    RECORDS_MAX = 100000, /* limit for a log that grows while we read it */
    CLOCK_SLACK_MS = 1000 /* the log's clock differs a little from the monotonic one */
};

/* A record is "priority,sequence,microseconds,flags;text". */
static const char *find_text(const char *record, uint64_t since_ms)
{
    unsigned long long us;
    const char *text;

    if (sscanf(record, "%*u,%*u,%llu,", &us) != 1 ||
        us / 1000 + CLOCK_SLACK_MS < since_ms || !(text = strchr(record, ';')))
        return NULL;
    return text + 1;
}

/* The time excludes an older process with the same pid. */
bool kmsg_is_kill(const char *record, pid_t pid, uint64_t since_ms, const char **text)
{
    char mark[48];

    *text = find_text(record, since_ms);
    if (pid == 0)
        return *text && strstr(*text, ": Killed process ") != NULL;
    (void)ct_format(mark, sizeof mark, "Killed process %d (", (int)pid);
    return *text && strstr(*text, mark) != NULL;
}

/* The first PID namespace has this inode in every kernel. */
static bool is_first_namespace(void)
{
    char name[64];
    const ssize_t n = readlink("/proc/self/ns/pid", name, sizeof name - 1);

    name[n > 0 ? n : 0] = '\0';
    return strcmp(name, "pid:[4026531836]") == 0;
}

/* The first line of the next record; false: there is none. */
static bool read_record(int fd, char record[RECORD_MAX_BYTES])
{
    ssize_t n;

    do /* the record was overwritten meanwhile: read the next one */
        n = read(fd, record, RECORD_MAX_BYTES - 1);
    while (n < 0 && errno == EPIPE);
    record[n > 0 ? n : 0] = '\0';
    record[strcspn(record, "\n")] = '\0'; /* key=value lines follow */
    return n > 0;
}

/* The log's clock stood still while the machine was suspended. */
static uint64_t to_log_ms(uint64_t since_ms)
{
    const uint64_t suspended_ms = ct_suspended_ms();

    return since_ms - (suspended_ms < since_ms ? suspended_ms : since_ms);
}

bool kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms,
                    bool *has_other)
{
    char record[RECORD_MAX_BYTES];
    bool is_found = false;
    const int fd = is_first_namespace()
                       ? open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                       : -1;

    *has_other = false;
    since_ms = to_log_ms(since_ms);
    for (int i = 0; fd >= 0 && i < RECORDS_MAX && !is_found; i++) {
        const char *text;

        if (!read_record(fd, record))
            break;
        is_found = kmsg_is_kill(record, pid, since_ms, &text) &&
                   ct_format(dst, size, "%.150s", text) >= 0;
        *has_other |= !is_found && kmsg_is_kill(record, 0, since_ms, &text);
    }
    if (fd >= 0)
        close(fd);
    return is_found;
}

bool kmsg_find_line(int fd, char *dst, size_t size, uint64_t since_ms,
                    bool (*fits)(void *context, const char *line), void *context)
{
    char record[RECORD_MAX_BYTES];

    since_ms = to_log_ms(since_ms);
    for (int i = 0; i < RECORDS_MAX && read_record(fd, record); i++) {
        const char *text = find_text(record, since_ms);

        if (text && fits(context, text))
            return ct_format(dst, size, "%.150s", text) >= 0;
    }
    return false;
}
