/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's loop: descriptors to watch and timers, over libuv; no other file uses libuv.
 *
 * Watches and timers live on the heap and free themselves after _close(), which may be called
 * inside their own callback; the callback is never called again. One thread. */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/buf.h"

struct loop;
struct loop_watch;
struct loop_timer;

enum loop_events {
    LOOP_READ = 1u << 0,
    LOOP_WRITE = 1u << 1
};

/* `events` are LOOP_* that are ready; an error on the descriptor counts as both, so that the
 * next read or write returns the error. */
typedef void loop_watch_fn(void *context, unsigned events);
typedef void loop_timer_fn(void *context);

/* 0, or a negative errno. */
int loop_create(struct loop **out);
/* Calls callbacks until loop_stop(). */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* Everything on it must have been closed. 0, or -EBUSY when a handle is still open (a bug). */
int loop_destroy(struct loop *loop);

/* Takes fd, makes it non-blocking and watches for nothing yet. NULL when memory is short or fd
 * cannot be watched (a regular file); fd is then closed. */
struct loop_watch *loop_watch_open(struct loop *loop, int fd, loop_watch_fn *fn,
                                   void *context);
/* From now on watches for `events`; 0: for nothing. */
void loop_watch_for(struct loop_watch *watch, unsigned events);
/* Writes what can be written now, and watches for LOOP_WRITE while something is left, else for nothing.
 * 0, or a negative errno. The caller ignores SIGPIPE. */
int loop_watch_write(struct loop_watch *watch, struct ct_buf *out);
int loop_watch_fd(const struct loop_watch *watch);
void loop_watch_close(struct loop_watch *watch); /* NULL is fine; closes fd */

struct loop_timer *loop_timer_open(struct loop *loop, loop_timer_fn *fn, void *context);
/* fires once; a second call replaces the first */
void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_close(struct loop_timer *timer); /* NULL is fine */
