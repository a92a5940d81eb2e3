/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the state of ctrund to the service manager with the protocol of sd_notify(3): one
 * datagram to the Unix socket in NOTIFY_SOCKET. No library is needed for this. */
#pragma once

/* `state` is "READY=1" or "STOPPING=1". 0, also if NOTIFY_SOCKET is not set; or a negative errno:
 * -EINVAL if NOTIFY_SOCKET names no Unix socket. Never blocks. */
int notify_send(const char *state);
