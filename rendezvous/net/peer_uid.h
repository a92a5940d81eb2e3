/* SPDX-License-Identifier: Apache-2.0 */
/* Whose process is at the other end of a TCP connection that stays on this machine: the kernel's
 * word (sock_diag(7)), as SO_PEERCRED is for Unix sockets. */
#pragma once

#include "worker_sdk/net/addr.h"

/* The inode of that socket, as links in /proc/PID/fd have it; 0: it is not on this machine, or not told. */
unsigned long peer_inode_find(const struct ct_addr *remote,
                              const struct ct_addr *local);
enum peer_user {
    PEER_USER_OURS,  /* ours, root's, on another machine, or the kernel does not tell */
    PEER_USER_OTHER, /* another user's, on this machine */
    PEER_USER_GONE /* closed by its process on this machine: whose it was is not known */
};

enum peer_user peer_user_of(const struct ct_addr *remote, const struct ct_addr *local);
