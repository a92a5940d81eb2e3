/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with the log directory while workers or people wait: aside (agent/aside.h), so
 * that a file system which does not answer costs seconds and a sentence, and no more. */
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

/* Everything that this round's workers need is there: logdir_enter() will ask nobody. At once
 * when it was there already. 0 or a code. */
int logdir_aside_prepare(struct logdir *dir, const struct logdir_request *request,
                         struct ctrun_error *err);
/* logdir_write(), after logdir_open() when there is none yet. Takes data, which is on the
 * heap; name is kept. */
int logdir_aside_write(struct logdir *dir, const struct logdir_request *request,
                       const char *name, void *data, size_t length,
                       struct ctrun_error *err);
/* logdir_has_files(); false when nobody answers. */
bool logdir_aside_has_files(const struct logdir *dir);
/* logdir_close(), as far as somebody answers. */
void logdir_aside_close(struct logdir *dir);

#endif
