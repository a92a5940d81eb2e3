/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the service manager how we are: the protocol of sd_notify(3), which is one datagram to
 * the Unix socket in NOTIFY_SOCKET, so that no library is needed for it. */
#pragma once

/* `state` is "READY=1" or "STOPPING=1". 0, also when nobody wants to know; or a negative errno:
 * -EINVAL when NOTIFY_SOCKET names no Unix socket. Never blocks. */
int notify_send(const char *state);
