/* SPDX-License-Identifier: Apache-2.0 */
/* Which process listens on a TCP port: for the message that says that a port is taken. */
#ifndef LAUNCHER_PORT_OWNER_H
#define LAUNCHER_PORT_OWNER_H

#include <stdint.h>

struct port_owner {
    int pid;
    char command[200]; /* words of its command line, cut */
    char user[64];
    uint64_t running_ms;
};

/* 1 when found, 0 when nobody listens or the owner is hidden from this user. Reads /proc. */
int port_owner_find(uint16_t port, struct port_owner *out);

#endif
