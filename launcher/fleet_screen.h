/* SPDX-License-Identifier: Apache-2.0 */
/* Where a --hosts run comes out: the lines of all workers with their host in front, and what
 * the launchers of all hosts say, once. */
#ifndef LAUNCHER_FLEET_SCREEN_H
#define LAUNCHER_FLEET_SCREEN_H

#include <stdbool.h>

#include "agent/loop.h"
#include "launcher/fleet_job.h"
#include "launcher/fleet_message.h"

struct fleet_screen;

struct fleet_screen_options {
    struct loop *loop;
    const struct fleet_job *job; /* kept */
    void *context;
    /* More waits than should (true); there is room again. */
    void (*on_full)(void *context, bool is_full);
};

int fleet_screen_open(struct fleet_screen **out,
                      const struct fleet_screen_options *options);
/* OUTPUT or WORDS. */
void fleet_screen_show(struct fleet_screen *screen,
                       const struct fleet_message *message);
/* One line of our own; comes out in its turn. */
__attribute__((format(printf, 2, 3))) void fleet_screen_say(struct fleet_screen *screen,
                                                            const char *fmt, ...);
/* Writes what waits, waiting for its reader for some seconds. NULL is fine. */
void fleet_screen_close(struct fleet_screen *screen);

/* ---- Pure */

struct fleet_echo;

/* Remembers what was said. NULL when memory is short. */
struct fleet_echo *fleet_echo_create(uint32_t hosts);
/* True when `text`, by its first line, is new: host `place` says it more often than any other
 * has before. */
bool fleet_echo_is_new(struct fleet_echo *echo, uint32_t place, const char *text,
                       size_t length);
void fleet_echo_destroy(struct fleet_echo *echo); /* NULL is fine */

#endif
