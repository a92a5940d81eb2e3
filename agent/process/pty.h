/* SPDX-License-Identifier: Apache-2.0 */
/* A pseudo terminal in place of a pipe: the program writes to a terminal, and draws progress
 * bars and colours as it would on ours. It changes no byte of what is written. */
#pragma once

/* *child_fd is what the worker writes to; the result is what we read: after all writers are gone
 * read() returns the rest and then fails with EIO. Both belong to the caller and are
 * close-on-exec. like_fd: a terminal whose size it gets. A negative errno where the machine has
 * no pseudo terminal left. */
int pty_open(int *child_fd, int like_fd);
/* The terminal like_fd may have another size now. */
void pty_resize(int fd, int like_fd);
