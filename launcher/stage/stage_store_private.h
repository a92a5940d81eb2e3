/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of stage_store: stage_store.c writes missing chunks, stage_store_check.c
 * checks what exists already, and stage_store_file.c moves a file to its place. */
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
    bool is_part; /* `checked` is the part, not the file */
    struct ct_digest digest;
    /* Taking: the open file, and the chunk that is being received. */
    int file;
    uint32_t file_entry;
    uint32_t chunk;
    uint32_t filled;
};

/* Fills `err` for `path` and rc (-errno). Returns CTRUN_E_STAGE. */
int stage_store_fail(const struct stage_store *store, const char *path, int rc,
                     struct ctrun_error *err);
/* True when this run may change the copy; else other runs use it. */
bool stage_store_is_ours(const struct stage_store *store);

bool stage_store_has_meta(const struct stat *info, const struct stage_entry *entry);
int stage_store_set_meta(int fd, const struct stage_entry *entry);

/* ---- stage_store_file.c: 0, a descriptor, or -errno ---------------------------------------- */

/* Renames the part to the entry's place. If rename() fails because a folder is there, removes it
 * first. */
int stage_store_publish(struct stage_store *store, const char *part,
                        const struct stage_entry *entry);
/* Opens the part of a file and sets its size to the file's. */
int stage_store_open_part(const struct stage_store *store,
                          const struct stage_entry *entry, int flags);
/* Sets mode and time of the complete part `fd`, and moves it to its place. */
int stage_store_finish_file(struct stage_store *store, const struct stage_entry *entry,
                            int fd);

/* ---- stage_store_check.c ------------------------------------------------------------------- */

/* Starts the check again in the next slot. 0, CTRUN_E_STAGE. */
int stage_store_begin(struct stage_store *store, struct ctrun_error *err);
