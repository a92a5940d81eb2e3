/* SPDX-License-Identifier: Apache-2.0 */
/* Calls logdir.h on another thread (agent/loop/blocking_call.h): a file system that does not answer
 * costs only some seconds and an error message, and the folders of many workers are made while the
 * first workers start.
 *
 *     logdir_blocking_begin() ── logdir_blocking_wait() for each worker ── ... ── logdir_blocking_close()
 *          └── a thread makes one folder after the other */
#pragma once

#include "launcher/run/logdir.h"

struct logdir_request {
    const char *base; /* see logdir_open() */
    const char *tmpdir;
    const char *run_id;
    uint64_t generation;
    uint32_t restart_count;
    int first; /* local ranks of this node: first to first + count - 1 */
    int count;
};

struct logdir_blocking {
    struct logdir dir;      /* of the last round passed to logdir_blocking_wait() */
    struct logdir_job *job; /* NULL: none was begun */
    bool has_files;         /* set by logdir_blocking_tidy() */
};

/* Starts to make the folders of a round, unless that was done before. Drops the job of the last
 * round. */
void logdir_blocking_begin(struct logdir_blocking *blocking,
                           const struct logdir_request *request);
/* Waits until the folder of this local rank is made; `dir` then belongs to that round. 0 or a
 * code. */
int logdir_blocking_wait(struct logdir_blocking *blocking, int local_rank,
                         struct ctrun_error *err);
/* For the end of a run: logdir_write(), after logdir_open() if dir is not open. Takes ownership of
 * data, which is on the heap; name must stay valid. */
int logdir_blocking_write(struct logdir_blocking *blocking,
                          const struct logdir_request *request, const char *name,
                          void *data, size_t length, struct ctrun_error *err);
/* logdir_tidy(), once. If the file system does not answer in time, has_files stays false. */
void logdir_blocking_tidy(struct logdir_blocking *blocking);
/* logdir_close(), unless the file system does not answer in time. */
void logdir_blocking_close(struct logdir_blocking *blocking);
