/* SPDX-License-Identifier: Apache-2.0 */
/* The process that holds a TCP port of this machine, for the message that the port is taken.
 *
 * Reads /proc/net/tcp and tcp6 for the socket's inode, then /proc/PID/fd for its owner. Sees what
 * this user may see: its own processes, or all if root. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum {
    PORT_OWNER_TEXT_MAX = 256
};

/* Writes "pid 4242 (python3 train.py)" into dst[PORT_OWNER_TEXT_MAX]. 0; -ENOENT: no process
 * listens there, but a connection may have the port; -EACCES: this user may not see the process.
 * dst explains the error, too. */
int port_owner_describe(int port, char *dst);
/* False: the program that listens at the port has a name that does not begin with `prefix`. True:
 * its name does, or no process listens, or this user may not look. */
bool port_owner_may_run(int port, const char *prefix);
/* Index of the process in `pids` that holds the socket; -1: none, or this user may not look. */
int port_owner_choose(unsigned long inode, const pid_t *pids, int count);
