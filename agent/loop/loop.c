/* SPDX-License-Identifier: Apache-2.0 */
/* libuv needs a handle to live until its close callback; so each handle is a heap object of its
 * own, and the agent can free its own objects at once. */
#include "agent/loop/loop.h"

#include <errno.h>
#include <unistd.h>
#include <stdlib.h>
#include <uv.h>

#include "worker_sdk/base/alloc.h"

struct loop {
    uv_loop_t uv;
};

struct loop_watch {
    uv_poll_t poll;
    loop_watch_fn *fn;
    void *context;
    int fd;
    unsigned events; /* watched for now */
};

struct loop_timer {
    uv_timer_t timer;
    loop_timer_fn *fn;
    void *context;
};

int loop_create(struct loop **out)
{
    struct loop *loop = ct_zalloc(sizeof *loop);
    int rc;

    if (!loop)
        return -ENOMEM;
    if ((rc = uv_loop_init(&loop->uv)) < 0) {
        free(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

void loop_run(struct loop *loop)
{
    (void)uv_run(&loop->uv, UV_RUN_DEFAULT); /* returns only whether handles are left */
}

void loop_stop(struct loop *loop)
{
    uv_stop(&loop->uv);
}

int loop_destroy(struct loop *loop)
{
    int rc;

    if (!loop)
        return 0;
    (void)uv_run(&loop->uv, UV_RUN_NOWAIT); /* a second uv_stop() may be pending */
    (void)uv_run(&loop->uv, UV_RUN_NOWAIT); /* run the close callbacks */
    rc = uv_loop_close(&loop->uv);
    if (rc == 0)
        free(loop);
    return rc;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct loop_watch *watch = poll->data;
    unsigned ready = 0;

    if (status < 0) { /* libuv has stopped watching */
        ready = watch->events;
        watch->events = 0;
    } else {
        ready |= events & UV_READABLE ? LOOP_READ : 0;
        ready |= events & UV_WRITABLE ? LOOP_WRITE : 0;
    }
    watch->fn(watch->context, ready);
}

struct loop_watch *loop_watch_open(struct loop *loop, int fd, loop_watch_fn *fn,
                                   void *context)
{
    struct loop_watch *watch = ct_zalloc(sizeof *watch);

    /* fd is closed on failure, too: callers need no second error path. */
    if (!watch || uv_poll_init(&loop->uv, &watch->poll, fd) < 0) {
        free(watch);
        close(fd);
        return NULL;
    }
    watch->poll.data = watch;
    watch->fn = fn;
    watch->context = context;
    watch->fd = fd;
    return watch;
}

void loop_watch_for(struct loop_watch *watch, unsigned events)
{
    int flags = 0;

    if (events == watch->events)
        return;
    watch->events = events;
    flags |= events & LOOP_READ ? UV_READABLE : 0;
    flags |= events & LOOP_WRITE ? UV_WRITABLE : 0;
    if (flags)
        (void)uv_poll_start(&watch->poll, flags,
                            on_poll); /* fails for closing handles only */
    else
        (void)uv_poll_stop(&watch->poll);
}

int loop_watch_write(struct loop_watch *watch, struct ct_buf *out)
{
    while (ct_buf_length(out) > 0) {
        const ssize_t n = write(watch->fd, ct_buf_data(out), ct_buf_length(out));

        if (n >= 0)
            ct_buf_consume(out, (size_t)n);
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            return -errno;
    }
    loop_watch_for(watch, ct_buf_length(out) > 0 ? LOOP_WRITE : 0);
    return 0;
}

int loop_watch_fd(const struct loop_watch *watch)
{
    return watch->fd;
}

static void on_watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void loop_watch_close(struct loop_watch *watch)
{
    if (!watch)
        return;
    /* The object lives until the loop has run the close callback; its own callback is not called
     * again. */
    uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
    close(watch->fd); /* libuv has taken it out of epoll by now */
}

static void on_timeout(uv_timer_t *handle)
{
    struct loop_timer *timer = handle->data;

    timer->fn(timer->context);
}

struct loop_timer *loop_timer_open(struct loop *loop, loop_timer_fn *fn, void *context)
{
    struct loop_timer *timer = ct_zalloc(sizeof *timer);

    if (!timer)
        return NULL;
    (void)uv_timer_init(&loop->uv, &timer->timer); /* cannot fail */
    timer->timer.data = timer;
    timer->fn = fn;
    timer->context = context;
    return timer;
}

void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms)
{
    uv_update_time(
        timer->timer.loop); /* the callback that calls this may have run for long */
    (void)uv_timer_start(&timer->timer, on_timeout, delay_ms, 0);
}

void loop_timer_stop(struct loop_timer *timer)
{
    (void)uv_timer_stop(&timer->timer);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void loop_timer_close(struct loop_timer *timer)
{
    if (timer)
        uv_close((uv_handle_t *)&timer->timer, on_timer_closed);
}
