/* SPDX-License-Identifier: Apache-2.0 */
/* Log files, written by a thread of their own: a disk that is slow, full or does not answer at
 * all (a hung NFS server) holds up neither the loop nor its heartbeats.
 *
 *     logfile_open() ── logfile_push() ... ── logfile_close()       the loop: never blocks
 *          └─ opened ──── written, renamed ────── closed            the thread
 *
 * Each file has a queue. Who finds it full stops reading from its worker and is called when
 * there is room: a slow disk holds back the worker that floods. When nothing at all could be
 * written for LOGFILE_STALL_MS, that is reported once and workers keep running: what does not fit is
 * left out, and a line in the file says how much. A file that cannot be opened or written
 * (disk full) is reported once, and from then on nothing of it is kept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/loop/loop.h"
#include "worker_sdk/base/error.h"

struct logfile_writer; /* the thread; started with the first file */
struct logfile;

struct logfile_options {
    const char *path;               /* copied; truncated when it is opened first */
    bool appends;                   /* not truncated */
    uint64_t max_bytes;             /* then it is renamed, see logrotate.h; 0: never */
    int keep;                       /* so many renamed ones */
    void (*on_room)(void *context); /* on the loop, after logfile_is_full() was true */
    void *context;
};

int logfile_writer_create(struct logfile_writer **out, struct loop *loop);
/* Waits until everything is written, but no longer than LOGFILE_FLUSH_MS. NULL is fine. */
void logfile_writer_destroy(struct logfile_writer *writer);

/* For ctrunctl chaos: while is_full nothing can be written, as on a full disk. How many files are open. */
int logfile_writer_set_full(struct logfile_writer *writer, bool is_full);

/* A path that is open already is shared: what is pushed in one call stays together. 0 or a
 * code; that a file cannot be opened is found out later and is no error here. */
int logfile_open(struct logfile_writer *writer, struct logfile **out,
                 const struct logfile_options *options, struct ctrun_error *err);
void logfile_push(struct logfile *file, const void *data, size_t length);
/* True: do not push before on_room. A little more is taken all the same. */
bool logfile_is_full(struct logfile *file);
/* What was pushed is still written. NULL is fine. */
void logfile_close(struct logfile *file);
