/* SPDX-License-Identifier: Apache-2.0 */
/* Asks torch's server in a worker (recorder.py) for what its flight recorder has. */
#ifndef AGENT_RECORDER_RECORDER_CLIENT_H
#define AGENT_RECORDER_RECORDER_CLIENT_H

#include <stdint.h>

#include "worker_sdk/base/buf.h"

/* Appends the JSON that `handler` of the server at this Unix socket answers. Blocks until `deadline_ms` (monotonic)
 * at most. 0; -ENOENT or -ECONNREFUSED: there is none; -EAGAIN: it does not even accept, as one that is
 * stopped; -ETIMEDOUT; -EBADMSG: no such answer; or a code of ct_buf. */
int recorder_ask(struct ct_buf *out, const char *path, const char *handler,
                 uint64_t deadline_ms);

#endif
