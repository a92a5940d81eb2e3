/* SPDX-License-Identifier: Apache-2.0 */
/* Asks torch's server in a worker (recorder.py) for what its flight recorder has. */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/buf.h"

/* Asks `handler` of the server at this Unix socket; never blocks, so that many can be asked before the
 * first is waited for. A descriptor; -ENOENT or -ECONNREFUSED: there is no server; -EAGAIN: it does not even
 * accept, as one that is stopped; or another negative errno. */
int recorder_ask(const char *path, const char *handler);
/* Appends the JSON that it answers, and closes fd. Blocks until `deadline_ms` (monotonic) at most. 0;
 * -ETIMEDOUT; -EBADMSG: it knows no such handler, or that is no answer; or a code of ct_buf. */
int recorder_take(struct ct_buf *out, int fd, uint64_t deadline_ms);
