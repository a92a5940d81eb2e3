/* SPDX-License-Identifier: Apache-2.0 */
/* What a process does that others can see, as figures of /proc that only grow: what it, and the processes
 * that it has started, read and wrote, and the most memory that it ever had, which grows while libraries
 * are loaded; and how often its first thread has run. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    TRAFFIC_PROCESSES_MAX = 64 /* of one worker; those beyond are not looked at */
};

struct traffic {
    uint64_t
        bytes; /* files, pipes, terminals; another figure also when a process came or went */
    uint64_t memory_mib; /* the most that the process ever had */
    uint64_t
        switches; /* of its first thread: that is at rest while this stays as it is */
    uint64_t cpu_ticks; /* of the process */
    char state;         /* of /proc/PID/stat; 0: it is gone */
};

/* Blocks no longer than /proc. */
void traffic_look(struct traffic *out, pid_t pid);
