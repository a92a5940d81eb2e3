/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/traffic.h"

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    TEXT_MAX_BYTES = 4096
};

/* The number behind `label`; 0: no line begins with the label. */
static uint64_t number_behind(const char *text, const char *label)
{
    const char *number = ct_small_file_find(text, label);

    return number ? strtoull(number, NULL, 10) : 0;
}

static uint64_t bytes_of(pid_t pid)
{
    static const char *const labels[] = {
        "rchar:", "wchar:", "read_bytes:", "write_bytes:"};
    char text[TEXT_MAX_BYTES];
    uint64_t sum = 0;

    (void)ct_small_file_of(text, sizeof text, pid, 0, "io");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        sum += number_behind(text, labels[i]);
    return sum;
}

static void read_stat(struct traffic *out, pid_t pid)
{
    char text[TEXT_MAX_BYTES];
    const char *at = ct_small_file_stat(text, sizeof text, pid, 0);
    unsigned long user, system;

    if (at && sscanf(at,
                     "%c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%lu %lu",
                     &out->state, &user, &system) == 3)
        out->cpu_ticks = user + system;
}

void traffic_look(struct traffic *out, pid_t pid)
{
    pid_t list[TRAFFIC_PROCESSES_MAX];
    char text[TEXT_MAX_BYTES];
    int count = 1;

    *out = (struct traffic){0};
    read_stat(out, pid);
    (void)ct_small_file_of(text, sizeof text, pid, pid, "status");
    out->switches = number_behind(text, "voluntary_ctxt_switches:") +
                    number_behind(text, "nonvoluntary_ctxt_switches:");
    out->memory_mib = number_behind(text, "VmHWM:") / 1024;
    list[0] = pid;
    for (int i = 0; i < count; i++) {
        count += ct_small_file_children(list + count, TRAFFIC_PROCESSES_MAX - count,
                                        list[i]);
        out->bytes += bytes_of(list[i]) + (uint64_t)list[i];
    }
}
