/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/loop/loop_listener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/seldom.h"

struct loop_listener {
    struct loop_watch *watch;
    struct loop_timer *pause;
    const char *name;
    loop_listener_fn *fn;
    void *context;
    struct ct_seldom full;
};

static void on_readable(void *context, unsigned events)
{
    struct loop_listener *listener = context;

    (void)events;
    listener->fn(listener->context);
}

static void on_pause_over(void *context)
{
    struct loop_listener *listener = context;

    loop_watch_for(listener->watch, LOOP_READ);
}

struct loop_listener *loop_listener_open(struct loop *loop, int fd, const char *name,
                                         loop_listener_fn *fn, void *context)
{
    struct loop_listener *listener = ct_zalloc(sizeof *listener);

    if (!listener) {
        close(fd);
        return NULL;
    }
    listener->name = name;
    listener->fn = fn;
    listener->context = context;
    listener->watch = loop_watch_open(loop, fd, on_readable, listener);
    listener->pause = loop_timer_open(loop, on_pause_over, listener);
    if (!listener->watch || !listener->pause) {
        loop_listener_close(listener);
        return NULL;
    }
    loop_watch_for(listener->watch, LOOP_READ);
    return listener;
}

int loop_listener_accept(struct loop_listener *listener)
{
    const int fd = accept4(loop_watch_fd(listener->watch), NULL, NULL,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int rc = fd < 0 ? -errno : fd;

    if (ct_is_short(rc)) {
        ct_log_seldom(&listener->full, CTRUN_LOG_WARN,
                      "%s: cannot accept a connection, tries again: %s%s",
                      listener->name, strerror(-rc),
                      rc == -EMFILE ? "; raise ulimit -n" : "");
        loop_watch_for(listener->watch, 0);
        loop_timer_set(listener->pause, LOOP_LISTENER_PAUSE_MS);
    }
    return rc;
}

void loop_listener_close(struct loop_listener *listener)
{
    if (!listener)
        return;
    loop_watch_close(listener->watch);
    loop_timer_close(listener->pause);
    free(listener);
}
