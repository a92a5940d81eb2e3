/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking TCP connection with deadlines: what every client of ours stands on.
 *
 * Sockets are non-blocking inside; each wait is a poll() that ends at a monotonic deadline.
 * Never raises SIGPIPE, restarts after EINTR, CLOEXEC and TCP_NODELAY everywhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/net/addr.h"

/* One try at each address of host:port in turn. Returns the connected descriptor and, when
 * `used` is not NULL, the address that answered; or CTRUN_E_DNS, -ETIMEDOUT, -ECONNREFUSED and
 * their like (of the last address), with a sentence. Asks the resolver, which has time-outs of
 * its own, unless host is a number. */
int ct_client_connect(const char *host, int port, uint64_t deadline_ms,
                      struct ct_addr *used, struct ctrun_error *err);
/* One try at one address. The descriptor, or a negative errno. */
int ct_client_dial(const struct ct_addr *addr, uint64_t deadline_ms);
/* True for what another try may cure: nobody listens yet, the network is not up yet. */
bool ct_client_is_passing(int rc);

/* Waits until fd is ready for one of `events` (POLLIN, POLLOUT). The events that hold,
 * -ETIMEDOUT, or a negative errno. */
int ct_client_poll(int fd, short events, uint64_t deadline_ms);
/* What can be read or written now: the count, 0 at the end of the stream (read), -EAGAIN, or
 * a negative errno. */
ssize_t ct_client_read_some(int fd, void *data, size_t size);
ssize_t ct_client_write_some(int fd, const void *data, size_t length);
