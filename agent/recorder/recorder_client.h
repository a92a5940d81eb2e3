/* SPDX-License-Identifier: Apache-2.0 */
/* Asks torch's server in a worker (recorder.py) for the contents of its flight recorder. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

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
/* Asks the first process that has a server, of the worker and its only children. `folder` is the path of the sockets with
 * a slash at its end; "": -ENOENT. The same results. */
int recorder_ask_worker(const char *folder, pid_t pid, const char *handler);
/* Appends the JSON of the answer, and closes fd. Blocks until `deadline_ms` (monotonic) at most. 0;
 * -ETIMEDOUT; -EBADMSG: the server has no such handler, or the answer is not valid; or a code of
 * ct_buf. */
int recorder_take(struct ct_buf *out, int fd, uint64_t deadline_ms);
/* Takes the answers of `count` connections, RECORDER_KINDS * RECORDER_BATCH at most (a negative one counts as none), in
 * the order in which they come, and closes all. So one that is silent keeps no other from being read; one that stops
 * within its answer leaves half of the time that is left to the others. fn gets the place in fds and the JSON of each
 * valid answer, borrowed for the call. */
void recorder_take_all(int *fds, int count, uint64_t deadline_ms,
                       void (*fn)(void *context, int place, const struct ct_buf *text),
                       void *context);
