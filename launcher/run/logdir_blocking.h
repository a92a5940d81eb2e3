/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with the log directory while workers or people wait, on another thread
 * (agent/loop/blocking_call.h): so a file system which does not answer costs seconds and a sentence, and
 * no more; and the folders of many workers are made while the first of them start.
 *
 *     logdir_blocking_begin() ── logdir_blocking_wait() for each worker ── ... ── logdir_blocking_close()
 *          └── a thread makes one folder after the other */
#pragma once

#include "launcher/run/logdir.h"

struct logdir_request {
    const char *base; /* as for logdir_open() */
    const char *tmpdir;
    const char *run_id;
    uint64_t generation;
    uint32_t restart_count;
    int first; /* local ranks of this node: first to first + count - 1 */
    int count;
};

struct logdir_blocking {
    struct logdir dir;      /* of the last round that was waited for */
    struct logdir_job *job; /* NULL: none was begun */
    bool has_files;         /* by logdir_blocking_tidy() */
};

/* Begins to make the folders of a round, unless that was done; a round before it is over. */
void logdir_blocking_begin(struct logdir_blocking *blocking,
                           const struct logdir_request *request);
/* The folder of this local rank is there, and dir is that round's. 0 or a code. */
int logdir_blocking_wait(struct logdir_blocking *blocking, int local_rank,
                         struct ctrun_error *err);
/* logdir_write(), after logdir_open() when there is none yet; for the end of a run. Takes data,
 * which is on the heap; name is kept. */
int logdir_blocking_write(struct logdir_blocking *blocking,
                          const struct logdir_request *request, const char *name,
                          void *data, size_t length, struct ctrun_error *err);
/* logdir_tidy(), once; false when nobody answers. */
void logdir_blocking_tidy(struct logdir_blocking *blocking);
/* logdir_close(), as far as somebody answers. */
void logdir_blocking_close(struct logdir_blocking *blocking);
