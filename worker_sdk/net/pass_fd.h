/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that goes along with bytes over a Unix socket. Nothing here waits; at most one goes with each send. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* As send(); fd, which stays ours, goes with the first byte; -1: none goes. */
ssize_t ct_send_with_fd(int socket, const void *data, size_t length, int fd);
/* As recv(). A descriptor that comes is close-on-exec and *passed's, which is closed if it is not -1: the last that
 * came counts. */
ssize_t ct_receive_with_fd(int socket, void *dst, size_t size, int *passed);
