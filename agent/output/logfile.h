/* SPDX-License-Identifier: Apache-2.0 */
/* Log files, written by a thread of their own: a disk that is slow, full or does not answer at
 * all (a hung NFS server) holds up neither the loop nor its heartbeats.
 *
 *     logfile_open() ── logfile_push() ... ── logfile_close()       the loop: never blocks
 *          └─ opened ──── written, renamed ────── closed            the thread
 *
 * Each file has a queue. A stream that finds it full stops reading from its worker and is called
 * when there is room: so a slow disk holds back a worker that writes too much. When nothing at
 * all could be written for LOGFILE_STALL_MS, that is reported once and workers keep running:
 * data that do not fit are left out, and a line in the file says how many bytes. A file that
 * cannot be opened or written (disk full) is reported once; later data for it are dropped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/loop/loop.h"
#include "worker_sdk/base/error.h"

struct logfile_writer; /* the thread; started with the first file */
struct logfile;

struct logfile_options {
    const char *path; /* copied; truncated at the first open */
    bool appends;     /* not truncated */
    /* at this size it is renamed, see logrotate.h; 0: never */
    uint64_t max_bytes;
    int keep;                       /* number of renamed files that are kept */
    void (*on_room)(void *context); /* on the loop, after logfile_is_full() was true */
    void *context;
};

int logfile_writer_create(struct logfile_writer **out, struct loop *loop);
/* Waits until everything is written, but no longer than LOGFILE_FLUSH_MS. NULL is fine. */
void logfile_writer_destroy(struct logfile_writer *writer);

/* For ctrunctl chaos: while is_full nothing can be written, as on a full disk. How many files are open. */
int logfile_writer_set_full(struct logfile_writer *writer, bool is_full);

/* A path that is open already is shared: data pushed in one call stay together. 0 or a code; a
 * file that cannot be opened is found out later and is no error here. */
int logfile_open(struct logfile_writer *writer, struct logfile **out,
                 const struct logfile_options *options, struct ctrun_error *err);
void logfile_push(struct logfile *file, const void *data, size_t length);
/* True: do not push before on_room. A small excess is accepted all the same. */
bool logfile_is_full(struct logfile *file);
/* Data that were pushed are still written. NULL is fine. */
void logfile_close(struct logfile *file);
