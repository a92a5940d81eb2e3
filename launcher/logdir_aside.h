/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with the log directory while workers or people wait: aside (agent/aside.h), so
 * that a file system which does not answer costs seconds and a sentence, and no more; and that
 * the folders of many workers are made while the first of them start.
 *
 *     logdir_aside_begin() ── logdir_aside_wait() for each worker ── ... ── logdir_aside_close()
 *          └── a thread makes one folder after the other */
#ifndef LAUNCHER_LOGDIR_ASIDE_H
#define LAUNCHER_LOGDIR_ASIDE_H

#include "launcher/logdir.h"

struct logdir_request {
    const char *base; /* as for logdir_open() */
    const char *tmpdir;
    const char *run_id;
    uint64_t generation;
    uint32_t restart_count;
    int first; /* local ranks of this node: first to first + count - 1 */
    int count;
};

struct logdir_aside {
    struct logdir dir;      /* of the last round that was waited for */
    struct logdir_job *job; /* NULL: none was begun */
};

/* Begins to make the folders of a round, unless that was done; a round before it is over. */
void logdir_aside_begin(struct logdir_aside *aside,
                        const struct logdir_request *request);
/* The folder of this local rank is there, and dir is that round's. 0 or a code. */
int logdir_aside_wait(struct logdir_aside *aside, int local_rank,
                      struct ctrun_error *err);
/* logdir_write(), after logdir_open() when there is none yet; for the end of a run. Takes data,
 * which is on the heap; name is kept. */
int logdir_aside_write(struct logdir_aside *aside, const struct logdir_request *request,
                       const char *name, void *data, size_t length,
                       struct ctrun_error *err);
/* logdir_has_files(); false when nobody answers. */
bool logdir_aside_has_files(const struct logdir_aside *aside);
/* logdir_close(), as far as somebody answers. */
void logdir_aside_close(struct logdir_aside *aside);

#endif
