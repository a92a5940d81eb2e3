/* SPDX-License-Identifier: Apache-2.0 */
/* One console of the launcher (its stdout or stderr), shared by the streams of many workers.
 *
 * Each source has a queue of whole pieces (lines.h). The console takes turns among the sources
 * that have something, and changes over between pieces only, so that no line is torn. It never
 * blocks the loop and never changes the flags of a descriptor that others share. A reader that
 * went away (EPIPE) makes it swallow everything: the training does not depend on a pager. */
#ifndef AGENT_CONSOLE_H
#define AGENT_CONSOLE_H

#include <stdbool.h>

#include "agent/loop.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"

struct console;

/* What a stream embeds; init with console_source_init(). */
struct console_source {
    struct ct_list node; /* in the console's ring while the queue is not empty */
    struct ct_buf queue; /* whole pieces that wait; the source appends */
    void (*on_room)(
        void *context); /* the queue is below its low mark again; may append */
    void *context;
};

void console_source_init(struct console_source *source, void (*on_room)(void *context),
                         void *context);
void console_source_deinit(
    struct console_source *source); /* takes it out of the ring */

/* fd is borrowed. NULL when memory is short. */
struct console *console_open(struct loop *loop, int fd);
/* True when writing to b would come out where a does. */
bool console_is_same(int fd_a, int fd_b);
/* The source has appended something. Writes at once what can be written. */
void console_push(struct console *console, struct console_source *source);
/* Writes all that waits, blocking; gives up when nothing was taken for timeout_ms. */
void console_flush(struct console *console, uint64_t timeout_ms);
/* True when the last byte that was written ends no line: more words begin with a newline. */
bool console_is_mid_line(const struct console *console);
void console_close(struct console *console); /* NULL is fine */

#endif
