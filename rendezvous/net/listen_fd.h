/* SPDX-License-Identifier: Apache-2.0 */
/* A listening TCP socket: on one address or on all, at one port, any, or the first free one of
 * a range. */
#pragma once

#include "worker_sdk/net/addr.h"
#include "worker_sdk/net/port_range.h"

struct listen_place {
    struct ct_addr
        addr; /* all zero bits, or 0.0.0.0, or ::, mean all addresses, v4 and v6 */
    struct ct_port_range ports; /* instead of the address's port 0 */
};

/* A non-blocking, close-on-exec descriptor that listens; *bound is where (its port is never 0).
 * A machine without IPv6 gets a v4 socket for "all". -EADDRINUSE, or another negative errno;
 * *bound is then the last address that was tried. */
int listen_fd_open(const struct listen_place *place, struct ct_addr *bound);
