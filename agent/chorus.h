/* SPDX-License-Identifier: Apache-2.0 */
/* A console on which workers that say the same are heard once (--collapse): between their
 * streams and the console stands collapse.h, here with its clock, its prefix and its queue.
 *
 *     output.c ── chorus_add() ──> collapse ── when it is time ──> prefix + line ──> console */
#ifndef AGENT_CHORUS_H
#define AGENT_CHORUS_H

#include "agent/console.h"

struct chorus;

struct chorus_options {
    struct loop *loop;
    struct console *console; /* kept */
    int workers;             /* of this node */
    void *context;
    /* What stands in front of a line of these workers (collapse.h: collapse_format()); is_teed:
     * where --tee puts a prefix. Caller frees; NULL: nothing. */
    char *(*prefix)(void *context, const uint64_t *workers, bool is_teed);
};

/* One stream's part in it; embedded by the stream. */
struct chorus_part {
    struct ct_list node; /* of those that wait for room */
    struct chorus *chorus;
    int worker;
    bool is_teed;
    void (*on_room)(void *context);
    void *context;
};

/* NULL when memory is short. */
struct chorus *chorus_open(const struct chorus_options *options);
void chorus_close(struct chorus *chorus); /* NULL is fine */
/* What waits goes to the console now, as far as that takes it; is_end: and so does all that
 * follows. */
void chorus_flush(struct chorus *chorus, bool is_end);

/* Fill in part->worker, is_teed, on_room and context first. */
void chorus_join(struct chorus *chorus, struct chorus_part *part);
void chorus_leave(struct chorus_part *part); /* one that never joined is fine */
/* One piece (lines.h). 0, or -ENOMEM. */
int chorus_add(struct chorus_part *part, const char *piece, size_t length);
/* After chorus_add(): prints what it is time for. */
void chorus_push(struct chorus *chorus);
/* True: add nothing before on_room. */
bool chorus_is_full(struct chorus_part *part);

#endif
