/* SPDX-License-Identifier: Apache-2.0 */
/* A console on which workers that say the same are heard once (--collapse): between their
 * streams and the console stands line_dedup.h, here with its clock, its prefix and its queue.
 *
 *     output.c ── console_dedup_add() ──> collapse ── when it is time ──> prefix + line ──> console */
#pragma once

#include "agent/output/console.h"

struct console_dedup;

struct console_dedup_options {
    struct loop *loop;
    struct console *console; /* kept */
    int workers;             /* of this node */
    void *context;
    /* What stands in front of a line of these workers (line_dedup.h: line_dedup_format()); is_teed:
     * where --tee puts a prefix. Caller frees; NULL: nothing. */
    char *(*prefix)(void *context, const uint64_t *workers, bool is_teed);
};

/* One stream's part in it; embedded by the stream. */
struct console_dedup_part {
    struct ct_list node; /* of those that wait for room */
    struct console_dedup *console_dedup;
    int worker;
    bool is_teed;
    void (*on_room)(void *context);
    void *context;
};

/* NULL when memory is short. */
struct console_dedup *console_dedup_open(const struct console_dedup_options *options);
void console_dedup_close(struct console_dedup *console_dedup); /* NULL is fine */
/* What waits goes to the console now, as far as that takes it; is_end: and so does all that
 * follows. */
void console_dedup_flush(struct console_dedup *console_dedup, bool is_end);

/* Fill in part->worker, is_teed, on_room and context first. */
void console_dedup_join(struct console_dedup *console_dedup,
                        struct console_dedup_part *part);
void console_dedup_leave(
    struct console_dedup_part *part); /* one that never joined is fine */
/* One piece (lines.h). 0, or -ENOMEM. */
int console_dedup_add(struct console_dedup_part *part, const char *piece,
                      size_t length);
/* After console_dedup_add(): prints what it is time for. */
void console_dedup_push(struct console_dedup *console_dedup);
/* True: add nothing before on_room. */
bool console_dedup_is_full(struct console_dedup_part *part);
