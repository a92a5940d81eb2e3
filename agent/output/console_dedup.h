/* SPDX-License-Identifier: Apache-2.0 */
/* A console that prints a line once when several workers write it (--collapse): line_dedup.h
 * between their streams and the console, with a clock, a prefix and a queue.
 *
 *     output.c ── console_dedup_add() ──> line_dedup ── in time ──> prefix + line ──> console */
#pragma once

#include "agent/output/console.h"

struct console_dedup;

struct console_dedup_options {
    struct loop *loop;
    struct console *console; /* kept */
    int workers;             /* of this node */
    void *context;
    /* The prefix for a line of these workers (line_dedup.h: line_dedup_format()); is_teed: the
     * prefix for a teed stream. The caller frees it; NULL: none. */
    char *(*prefix)(void *context, const uint64_t *workers, bool is_teed);
};

/* One stream's part in a console_dedup; embedded by the stream. */
struct console_dedup_part {
    struct ct_list node; /* in the list of parts that wait for room */
    struct console_dedup *console_dedup;
    int worker;
    bool is_teed;
    void (*on_room)(void *context);
    void *context;
};

/* NULL when memory is short. */
struct console_dedup *console_dedup_open(const struct console_dedup_options *options);
void console_dedup_close(struct console_dedup *console_dedup); /* NULL is fine */
/* Waiting lines go to the console now, as far as it accepts them; is_end: so do all later lines. */
void console_dedup_flush(struct console_dedup *console_dedup, bool is_end);

/* Fill in part->worker, is_teed, on_room and context first. */
void console_dedup_join(struct console_dedup *console_dedup,
                        struct console_dedup_part *part);
void console_dedup_leave(
    struct console_dedup_part *part); /* a part that never joined is fine */
/* One piece (lines.h). 0, or -ENOMEM. */
int console_dedup_add(struct console_dedup_part *part, const char *piece,
                      size_t length);
/* After console_dedup_add(): prints the lines whose time has come. */
void console_dedup_push(struct console_dedup *console_dedup);
/* True: add nothing before on_room. */
bool console_dedup_is_full(struct console_dedup_part *part);
