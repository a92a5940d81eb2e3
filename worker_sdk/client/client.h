/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking TCP connection with deadlines, used by every client of ours.
 *
 * Sockets are non-blocking inside; each wait is a poll() that ends at a monotonic deadline. Never
 * raises SIGPIPE; restarts after EINTR; sets CLOEXEC and TCP_NODELAY on every socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/net/addr.h"

/* Tries each address of host:port once, in turn. Returns the connected descriptor and, when `used`
 * is not NULL, the address that answered; or CTRUN_E_DNS, -ETIMEDOUT, -ECONNREFUSED or a similar
 * code (of the last address), with an error text. Calls the resolver, which has time-outs of its
 * own, unless host is a numeric address. */
int ct_client_connect(const char *host, int port, uint64_t deadline_ms,
                      struct ct_addr *used, struct ctrun_error *err);
/* Tries one address once. Returns the descriptor or a negative errno. */
int ct_client_dial(const struct ct_addr *addr, uint64_t deadline_ms);
/* True for an error that may go away: nobody listens yet, the network is not up yet. */
bool ct_client_is_passing(int rc);

/* Waits until fd is ready for one of `events` (POLLIN, POLLOUT). Returns the events that are ready,
 * -ETIMEDOUT, or a negative errno. */
int ct_client_poll(int fd, short events, uint64_t deadline_ms);
/* Reads or writes what is possible now. Returns the count, 0 at the end of the stream (read),
 * -EAGAIN, or a negative errno. */
ssize_t ct_client_read_some(int fd, void *data, size_t size);
ssize_t ct_client_write_some(int fd, const void *data, size_t length);
