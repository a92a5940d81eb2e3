/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the output of a --hosts run: the lines of all workers with their host in front, and the
 * messages of the launchers of all hosts, equal messages once. */
#pragma once

#include <stdbool.h>

#include "agent/loop/loop.h"
#include "launcher/report/messages.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"

struct ssh_console;

struct ssh_console_options {
    struct loop *loop;
    const struct ssh_job *job; /* borrowed */
    void *context;
    /* true: too much output is queued, pause the input; false: there is room again. */
    void (*on_full)(void *context, bool is_full);
};

int ssh_console_open(struct ssh_console **out,
                     const struct ssh_console_options *options);
/* Prints an OUTPUT or WORDS message, of OUTPUT only whole lines. */
void ssh_console_show(struct ssh_console *console, const struct ssh_message *message);
/* No more comes from this host: prints its last line, which has no end. */
void ssh_console_end(struct ssh_console *console, uint32_t host);
/* Prints one line of this process, after all lines that were queued before. */
__attribute__((format(printf, 3, 4))) void
ssh_console_print(struct ssh_console *console, enum messages_level level,
                  const char *fmt, ...);
/* Writes the queued output; waits some seconds for a slow reader. NULL is fine. */
void ssh_console_close(struct ssh_console *console);

/* ---- Pure */

struct ssh_message_dedup;

/* Remembers printed messages. NULL when memory is short. */
struct ssh_message_dedup *ssh_message_dedup_create(uint32_t hosts);
/* True when `text` is to be printed: host `place` has now sent its first line more often than it
 * was printed before. */
bool ssh_message_dedup_is_new(struct ssh_message_dedup *dedup, uint32_t place,
                              const char *text, size_t length);
void ssh_message_dedup_destroy(struct ssh_message_dedup *dedup); /* NULL is fine */
