/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a host's copies share: stage_store.c takes what is missing, stage_store_check.c
 * finds out what is there already, and stage_store_file.c puts a file into its place. Each needs only
 * what is named after it. */
#pragma once

#include <sys/stat.h>

#include "launcher/stage/stage_store.h"
#include "launcher/stage/stage_tree.h"

enum {
    STAGE_STORE_READ_BYTES = 256 * 1024
};

struct stage_store {
    const struct stage_manifest *manifest;
    struct stage_slot slot;
    struct stage_tree tree;
    struct stage_set needs;
    uint64_t done;
    uint8_t *data;
    /* Checking: the next entry, and a file of it that is being read. */
    uint32_t entry;
    int checked;
    uint64_t offset;
    bool is_part; /* it is the part that is read, not the file */
    struct ct_digest digest;
    /* Taking: the file that is open, and the chunk that is under way. */
    int file;
    uint32_t file_entry;
    uint32_t chunk;
    uint32_t filled;
};

/* CTRUN_E_STAGE: -errno at that path. */
int stage_store_fail(const struct stage_store *store, const char *path, int rc,
                     struct ctrun_error *err);
/* It may be changed; else others use it. */
bool stage_store_is_ours(const struct stage_store *store);

bool stage_store_has_meta(const struct stat *info, const struct stage_entry *entry);
int stage_store_set_meta(int fd, const struct stage_entry *entry);

/* ---- stage_store_file.c: 0, a descriptor, or -errno ---------------------------------------- */

/* What is at the entry's place but a folder where none belongs is replaced by rename(). */
int stage_store_publish(struct stage_store *store, const char *part,
                        const struct stage_entry *entry);
/* The part of a file, of its size. */
int stage_store_open_part(const struct stage_store *store,
                          const struct stage_entry *entry, int flags);
/* `fd` is its part, and whole. */
int stage_store_finish_file(struct stage_store *store, const struct stage_entry *entry,
                            int fd);

/* ---- stage_store_check.c ------------------------------------------------------------------- */

/* From the beginning, in the next slot. 0, CTRUN_E_STAGE. */
int stage_store_begin(struct stage_store *store, struct ctrun_error *err);
