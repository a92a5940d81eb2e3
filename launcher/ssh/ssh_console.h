/* SPDX-License-Identifier: Apache-2.0 */
/* Where a --hosts run comes out: the lines of all workers with their host in front, and what
 * the launchers of all hosts say, once. */
#pragma once

#include <stdbool.h>

#include "agent/loop/loop.h"
#include "launcher/report/messages.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"

struct ssh_console;

struct ssh_console_options {
    struct loop *loop;
    const struct ssh_job *job; /* kept */
    void *context;
    /* More waits than should (true); there is room again. */
    void (*on_full)(void *context, bool is_full);
};

int ssh_console_open(struct ssh_console **out,
                     const struct ssh_console_options *options);
/* OUTPUT or WORDS. */
void ssh_console_show(struct ssh_console *console, const struct ssh_message *message);
/* One line of our own; comes out in its turn. */
__attribute__((format(printf, 3, 4))) void
ssh_console_print(struct ssh_console *console, enum messages_level level,
                  const char *fmt, ...);
/* Writes what waits, waiting for its reader for some seconds. NULL is fine. */
void ssh_console_close(struct ssh_console *console);

/* ---- Pure */

struct ssh_message_dedup;

/* Remembers what was said. NULL when memory is short. */
struct ssh_message_dedup *ssh_message_dedup_create(uint32_t hosts);
/* True when `text`, by its first line, is new: host `place` says it more often than any other
 * has before. */
bool ssh_message_dedup_is_new(struct ssh_message_dedup *dedup, uint32_t place,
                              const char *text, size_t length);
void ssh_message_dedup_destroy(struct ssh_message_dedup *dedup); /* NULL is fine */
