/* SPDX-License-Identifier: Apache-2.0 */
/* Visible progress of a process, as counters of /proc that only grow: bytes that it and its descendants read
 * and wrote; its peak memory, which grows while libraries are loaded; and how often its first thread has run. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    TRAFFIC_PROCESSES_MAX = 64 /* processes of one worker; more are not read */
};

struct traffic {
    uint64_t
        bytes; /* of files, pipes, terminals; changes also when a process starts or ends */
    uint64_t memory_mib; /* peak of the process */
    uint64_t
        switches; /* of its first thread, which is at rest while this does not change */
    uint64_t cpu_ticks; /* of the process */
    char state;         /* of /proc/PID/stat; 0: it is gone */
};

/* Blocks only as long as reading /proc. */
void traffic_look(struct traffic *out, pid_t pid);
