/* SPDX-License-Identifier: Apache-2.0 */
/* The user of the process at the other end of a TCP connection within this machine. The kernel
 * tells it (sock_diag(7)), as SO_PEERCRED does for Unix sockets. */
#pragma once

#include "worker_sdk/net/addr.h"

/* The user of the open socket that is bound to `remote` and connected to `local`. 0; -ENOENT: there
 * is none on this machine, or it has been closed; another negative errno: the kernel does not tell.
 * Costs some system calls and never waits. */
int peer_uid_find(uid_t *out, const struct ct_addr *remote,
                  const struct ct_addr *local);
/* The inode of that socket, as in the links of /proc/PID/fd; 0: not on this machine, or the kernel
 * does not tell. */
unsigned long peer_inode_find(const struct ct_addr *remote,
                              const struct ct_addr *local);
enum peer_user {
    PEER_USER_OURS,  /* ours, root's, on another machine, or the kernel does not tell */
    PEER_USER_OTHER, /* another user's, on this machine */
    /* its user is not known: closed by its process on this machine, or we have no descriptor or memory to ask */
    PEER_USER_GONE
};

enum peer_user peer_user_of(const struct ct_addr *remote, const struct ct_addr *local);
