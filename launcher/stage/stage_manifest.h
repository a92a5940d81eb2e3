/* SPDX-License-Identifier: Apache-2.0 */
/* What is copied to every host of a --stage run: each file with its size, mode, time and
 * checksums, each folder, each symbolic link.
 *
 * A file is split into chunks of STAGE_CHUNK_BYTES. The chunks of all files have one numbering, and
 * each chunk has a checksum: chunks are requested, sent and verified. So a large file that was
 * received in part continues where it stopped.
 *
 * Entries are in the order of a walk: a folder before its entries, names of one folder in byte
 * order. A decoded manifest is safe to be written below a folder: no path leads out of the folder,
 * no path comes twice, and the parent of each entry is a folder of the same manifest, never a link.
 * Links are copied as links, and no file is written through a link. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/digest.h"

enum {
    STAGE_CHUNK_BYTES = 4 << 20,
    STAGE_ENTRIES_MAX = 1 << 20,
    STAGE_CHUNKS_MAX = 1 << 22, /* 16 TB in large files */
    STAGE_PATH_MAX = 2048, /* relative to the destination, whose path is put in front */
    STAGE_NAME_MAX = 255,
    STAGE_MANIFEST_MAX_BYTES = 256 << 20,
    STAGE_SOURCES_MAX = 64,
};

enum stage_kind {
    STAGE_FOLDER = 1,
    STAGE_FILE = 2,
    STAGE_LINK = 3,
};

struct stage_entry {
    enum stage_kind kind;
    uint32_t mode; /* permissions; 0 for a link */
    int64_t mtime_ns;
    uint64_t size;        /* of a file */
    char *path;           /* relative; owned, as are the others */
    char *target;         /* of a link */
    uint32_t first_chunk; /* of a file: index in sums */
    uint32_t chunks;
};

/* One PATH of --stage. Its copy has the last part of its name, below the destination. */
struct stage_source {
    char *typed; /* absolute, as typed, without "." and ".." */
    char *real;  /* without symbolic links; may be the same */
    char *name;
};

struct stage_manifest {
    uint8_t key[16]; /* names the destination: a hash of the sources' paths */
    char *dir;       /* --stage-dir; empty: TMPDIR */
    char *program;   /* the staged path of PROGRAM; empty: not staged */
    uint32_t word;   /* index of PROGRAM in argv */
    bool is_removed; /* remove the copies at the end of the run */
    uint32_t source_count;
    struct stage_source *sources;
    uint32_t count;
    uint32_t capacity;
    struct stage_entry *entries;
    uint32_t chunk_count;
    uint32_t chunk_capacity;
    uint8_t (*sums)[CT_DIGEST_BYTES];
    uint64_t bytes; /* of all files */
};

/* ---- Building */

/* Appends a copy of the entry and its strings. The sums of a file's chunks are zero. 0, -ENOMEM,
 * -E2BIG: too many entries or chunks, -ENAMETOOLONG, -EINVAL: malformed, or not in order. */
int stage_manifest_add(struct stage_manifest *manifest,
                       const struct stage_entry *entry);
/* typed and real are absolute. 0, -ENOMEM. */
int stage_manifest_add_source(struct stage_manifest *manifest, const char *typed,
                              const char *real);
/* Frees the entries when staging is over: a run is long. */
void stage_manifest_drop(struct stage_manifest *manifest);
void stage_manifest_deinit(struct stage_manifest *manifest); /* zeroed or whole */

/* ---- Travelling */

/* 0, -ENOBUFS, -ENOMEM. */
int stage_manifest_encode(struct ct_buf *out, const struct stage_manifest *manifest);
/* 0, -EBADMSG, -ENOMEM: then *out is zeroed. */
int stage_manifest_decode(struct stage_manifest *out, const void *data, size_t length);

/* ---- Looking */

/* The file that has this chunk. */
const struct stage_entry *stage_manifest_file(const struct stage_manifest *manifest,
                                              uint32_t chunk);
/* The entry with that path; NULL: none. */
const struct stage_entry *stage_manifest_find(const struct stage_manifest *manifest,
                                              const char *path);
/* Bytes of a chunk of this file; only the last one is shorter. */
uint32_t stage_chunk_size(const struct stage_entry *file, uint32_t chunk);
/* Offset of the chunk in its file. */
uint64_t stage_chunk_offset(const struct stage_entry *file, uint32_t chunk);
/* True for a relative path without "", "." and ".." that is not too long. */
bool stage_path_is_safe(const char *path);
/* In the order of a walk: as strcmp(), but '/' comes before everything. */
int stage_path_compare(const char *a, const char *b);
