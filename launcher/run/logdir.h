/* SPDX-License-Identifier: Apache-2.0 */
/* Where a node's files go:
 * BASE/RUN_xxxxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
 *
 * BASE/RUN_xxxxxxxx is made once per launcher, with eight random characters, and another one
 * when a round begins and it is gone. Each round gets an attempt directory of its own:
 * attempt_N with N the restart count, attempt_N.2 and so on when the count repeats because
 * only the membership changed. Nothing that exists is ever deleted, except empty directories
 * of a temporary base at the end. All paths are absolute. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

struct logdir {
    bool is_open;
    bool is_temporary; /* logdir_open() made base: torchelastic_xxxxxxxx */
    bool lacks_tmpdir; /* tmpdir was given and does not exist: base is in /tmp */
    char base[PATH_MAX];
    char run[PATH_MAX];     /* base/RUN_xxxxxxxx */
    char attempt[PATH_MAX]; /* of the current round */
    uint64_t generation;    /* of the current round */
    int made_first;         /* first local rank whose folder exists */
    int made_count;
};

/* base NULL: a new directory in tmpdir (NULL, or it does not exist: /tmp). 0 or a code. */
int logdir_open(struct logdir *dir, const char *base, const char *tmpdir,
                const char *run_id, struct ctrun_error *err);
/* Somebody has removed the directory of the run. */
bool logdir_is_gone(const struct logdir *dir);
/* Makes the attempt directory of a round (once) and the worker's directory in it, unless they are
 * known to exist. 0 or a code. */
int logdir_enter(struct logdir *dir, uint64_t generation, uint32_t restart_count,
                 int local_rank, struct ctrun_error *err);
/* ATTEMPT/LOCAL_RANK/name, or ATTEMPT/name with local_rank -1; caller frees. NULL: no
 * memory, or too long. */
char *logdir_path(const struct logdir *dir, int local_rank, const char *name);
/* Writes RUN/name as a whole or not at all: a reader sees the old file, none, or the new one. 0 or
 * a code. */
int logdir_write(const struct logdir *dir, const char *name, const void *data,
                 size_t length, struct ctrun_error *err);
/* Called at the end, when nothing writes any more. True: the current attempt has files, which are
 * worth reporting. False: the folders of a temporary base were removed, and dir is closed if none
 * is left. */
bool logdir_tidy(struct logdir *dir);
/* Removes empty folders if the base is temporary. Idempotent. */
void logdir_close(struct logdir *dir);
