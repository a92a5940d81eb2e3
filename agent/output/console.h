/* SPDX-License-Identifier: Apache-2.0 */
/* One console of the launcher (its stdout or stderr), shared by the streams of many workers.
 *
 * Each source has a queue of pieces (lines.h). The sources that have output take turns, and a
 * turn ends only between pieces, so that no line is torn; an unfinished line is ended before
 * another source writes, and continues later with its prefix. It never blocks the loop and never
 * changes the flags of a descriptor that others share. When it cannot be written (nobody reads
 * the pipe, the disk is full) that is reported once; later output is dropped, and the sources
 * must let their workers notice, as these would without us. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/loop/loop.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"

struct console;

/* What a stream embeds; init with console_source_init(). */
struct console_source {
    struct ct_list node; /* in the console's ring while the queue is not empty */
    uint64_t number;     /* unlike its address, no later source has it; from 1 */
    struct ct_buf queue; /* pieces that wait to be written; the source appends them */
    /* in front of a line that continues after another source wrote; NULL: none */
    const char *prefix;
    bool is_open; /* its last byte on the console ended no line */
    void (*on_room)(
        void *context); /* the queue is below its low mark again; may append */
    void *context;
};

void console_source_init(struct console_source *source, void (*on_room)(void *context),
                         void *context);
void console_source_deinit(
    struct console_source *source); /* takes the source out of the ring */

/* fd is borrowed. NULL when memory is short. */
struct console *console_open(struct loop *loop, int fd);
/* Standard output and standard error are the same terminal or file. */
bool console_is_shared(void);
/* The source has appended something. Writes at once what can be written. */
void console_push(struct console *console, struct console_source *source);
/* Writes all that waits, blocking; gives up when nothing was taken for timeout_ms, or, once a signal has come
 * meanwhile, for OUTPUT_HURRY_MS. */
void console_flush(struct console *console, uint64_t timeout_ms);
/* True once it could not be written. */
bool console_is_lost(const struct console *console);
/* Looks whether the console is still read; for callers that have not written to it. */
void console_check(struct console *console);
/* Shows a text of this program itself, whole lines, on standard error, on a line of its own, and never waits. False: the
 * caller writes it, because the console is closed or broken; its unfinished line has an end now. Only in the thread of
 * the consoles. */
bool console_message(const char *text, size_t length);
void console_close(struct console *console); /* NULL is fine */
