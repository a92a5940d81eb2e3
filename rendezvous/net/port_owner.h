/* SPDX-License-Identifier: Apache-2.0 */
/* The process that holds a TCP port of this machine, for the message that the port is taken.
 *
 * Reads /proc/net/tcp and tcp6 for the socket's inode, then /proc/PID/fd for its owner. Sees what
 * this user may see: its own processes, or all if root. */
#pragma once

#include <sys/types.h>

enum {
    PORT_OWNER_TEXT_MAX = 256
};

/* Writes "pid 4242 (python3 train.py)" into dst[PORT_OWNER_TEXT_MAX]. 0; -ENOENT: no process
 * listens there, but a connection may have the port; -EACCES: this user may not see the process.
 * dst explains the error, too. */
int port_owner_describe(int port, char *dst);
/* Which of the processes holds the socket; -1: none of them, or it cannot be seen. */
int port_owner_choose(unsigned long inode, const pid_t *pids, int count);
