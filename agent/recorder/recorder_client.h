/* SPDX-License-Identifier: Apache-2.0 */
/* Asks torch's server in a worker (recorder.py) for the contents of its flight recorder. */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/buf.h"

enum {
    RECORDER_KINDS = 2 /* of one process: torch's own recorder, and that of its NCCL */
};

extern const struct recorder_kind {
    const char *name;      /* in front of the names of its groups */
    const char *handler;   /* of the server: for the last calls */
    const char *for_calls; /* for all calls */
} recorder_kinds[RECORDER_KINDS];

/* Asks `handler` of the server at this Unix socket; never blocks, so that many servers can be asked
 * before the first answer is read. A descriptor; -ENOENT or -ECONNREFUSED: there is no server;
 * -EAGAIN: the server does not accept, for example because it is stopped; or another negative
 * errno. */
int recorder_ask(const char *path, const char *handler);
/* Appends the JSON of the answer, and closes fd. Blocks until `deadline_ms` (monotonic) at most. 0;
 * -ETIMEDOUT; -EBADMSG: the server has no such handler, or the answer is not valid; or a code of
 * ct_buf. */
int recorder_take(struct ct_buf *out, int fd, uint64_t deadline_ms);
