/* SPDX-License-Identifier: Apache-2.0 */
/* What one dead worker has left, while the others go on: the processes of its session, and what
 * descends from those. A process that has left the session and whose parents are all dead cannot
 * be told from another worker's: it lives until the round ends. */
#ifndef AGENT_PROCESS_LEFTOVERS_KILL_H
#define AGENT_PROCESS_LEFTOVERS_KILL_H

#include <sys/types.h>

#include "agent/process/leftovers.h"

enum {
    LEFTOVERS_KILL_MAX = 512 /* known at a time; the rest is found in the next pass */
};

/* Zeroed but for session, the pid of the worker, which names the session for as long as anybody is
 * in it; the worker itself is reaped. */
struct leftovers_kill {
    pid_t session;
    int count;
    pid_t pids[LEFTOVERS_KILL_MAX]; /* killed, and alive in the last pass */
};

/* One pass: sends SIGKILL to all of them; `named` (may be NULL) gets who they are. Returns how many
 * were alive: look again until it is 0. */
int leftovers_kill(struct leftovers_kill *remains, struct leftovers *named);

#endif
