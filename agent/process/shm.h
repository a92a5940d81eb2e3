/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL, Gloo and PyTorch leave in /dev/shm when they are killed: files that fill it up until
 * nothing starts any more.
 *
 * A name proves nothing: another job of this user may own it, and so may somebody who keeps data
 * there. Removed is only what is ours: made since this run began, seen in the hands of a process
 * below us, and in nobody's hands any more.
 *
 *     shm_watch_init ── shm_watch_look, while workers live ── shm_watch_remove, when all are gone */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct shm_file {
    char name[NAME_MAX + 1];
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    bool is_held; /* by one of those that were looked at */
};

struct shm_watch {
    const char *folder;    /* borrowed */
    struct timespec since; /* what was made until then is not ours */
    struct shm_file *list; /* ours; NULL: none so far */
    int count;
};

void shm_watch_init(struct shm_watch *watch, const char *folder);
void shm_watch_deinit(struct shm_watch *watch);
/* Notes what our descendants hold. Costs one look at the folder, and one at each of them when
 * there is a new file. Those of data loaders (torch_) come and go: only with `all`. */
void shm_watch_look(struct shm_watch *watch, bool all);
/* Removes what was noted and nobody holds. Returns how many files. */
int shm_watch_remove(struct shm_watch *watch);

/* Files of such names that are this user's, older than min_age_s and held by no process that we see:
 * for people. Nothing is removed. */
int shm_count_unused(const char *folder, uint64_t min_age_s, uint64_t *bytes);
