/* SPDX-License-Identifier: Apache-2.0 */
/* Files that NCCL, Gloo and PyTorch leave in /dev/shm when they are killed. They fill it up
 * until no program starts any more.
 *
 * A name proves nothing: another job of this user may own it, and so may somebody who keeps data
 * there. Only files of this run are removed: made since the run began, seen open or mapped in a
 * process below us, and held by no process any more.
 *
 *     shm_watch_init ── shm_watch_look, while workers live ── shm_watch_remove, when all are gone
 */
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
    bool is_held; /* by one of the processes that were looked at */
};

struct shm_watch {
    struct timespec since; /* a file made until then is not ours */
    struct shm_file *list; /* ours; NULL: none so far */
    int count;
};

void shm_watch_init(struct shm_watch *watch);
void shm_watch_deinit(struct shm_watch *watch);
/* Notes the files that our descendants hold; none when that cannot be found out in SHM_LOOK_MS. Reads the folder once,
 * and each descendant only when there is a new file. Files of data loaders (torch_) come and go: they are noted only
 * with `all`. */
void shm_watch_look(struct shm_watch *watch, bool all);
/* Removes files that were noted and that no process holds; none when that cannot be found out in SHM_REMOVE_MS, or in
 * two thirds of the time until silent_until_ms, when the lease of this node ends, or there is no thread for it. Returns
 * how many. */
int shm_watch_remove(struct shm_watch *watch, uint64_t silent_until_ms);

/* Counts files with such names that are this user's, older than min_age_s and held by no process
 * that we see, to tell people about them. Removes nothing. */
int shm_count_unused(uint64_t min_age_s, uint64_t *bytes);
