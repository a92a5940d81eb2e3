/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a descriptor together with bytes over a Unix socket: at most one with each send. Never
 * blocks. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* As send(); fd is sent with the first byte and stays owned by the caller; -1: no descriptor. */
ssize_t ct_send_with_fd(int socket, const void *data, size_t length, int fd);
/* As recv(). A received descriptor is close-on-exec and stored in *passed, after the one in *passed
 * is closed if it is not -1: the last descriptor counts. */
ssize_t ct_receive_with_fd(int socket, void *dst, size_t size, int *passed);
