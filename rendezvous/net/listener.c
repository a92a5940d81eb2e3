/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/net/port_owner.h"

/* ---- Connections ------------------------------------------------------------------------- */

static void watch(struct listener *listener);

static void on_turn(uv_timer_t *timer)
{
    struct listener *listener = timer->data;

    listener->count = 0;
    watch(listener);
}

/* Leaves the connections that wait alone until the timer fires. */
static void pause_for(struct listener *listener, uint64_t ms)
{
    (void)uv_poll_stop(&listener->poll);                   /* open: cannot fail */
    (void)uv_timer_start(&listener->turn, on_turn, ms, 0); /* the same */
}

int listener_accept(struct listener *listener)
{
    const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    return listener->last = fd < 0 ? -errno : fd;
}

/* The callback may close the listener. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;

    (void)events;
    if (status < 0) { /* an error of the socket; libuv does not watch it any more */
        pause_for(listener, LISTENER_PAUSE_MS);
        return;
    }
    for (unsigned i = 0; i < LISTENER_BURST && listener->is_open; i++) {
        if (listener->count++ >= LISTENER_BURST) {
            pause_for(listener, 1);
            return;
        }
        if (listener->count == 1)
            (void)uv_timer_start(&listener->turn, on_turn, 1, 0);
        listener->last = -EBUSY; /* until it is accepted */
        listener->on_connection(listener, listener->context);
        if (listener->last < 0)
            break;
    }
    if (!listener->is_open || listener->last >= 0)
        return;
    if (ct_is_short(listener->last)) { /* it stays in the queue of the kernel */
        ct_log_seldom(&listener->full, CTRUN_LOG_WARN,
                      "rendezvous: cannot accept a connection, tries again: %s%s",
                      strerror(-listener->last),
                      listener->last == -EMFILE ? "; raise ulimit -n" : "");
        pause_for(listener, LISTENER_PAUSE_MS);
    } else if (listener->last == -EBUSY) {
        (void)uv_timer_stop(&listener->turn);
        (void)uv_poll_stop(&listener->poll); /* until listener_retry() */
        listener->count = 0;
    }
}

static void watch(struct listener *listener)
{
    (void)uv_poll_start(&listener->poll, UV_READABLE, on_readable); /* cannot fail */
}

/* ---- Life -------------------------------------------------------------------------------- */

/* A socket of our own that listens already: libuv's bind reports a busy port too late to try the
 * next one. */
static int take_fd(struct listener *listener, uv_loop_t *loop, int fd)
{
    const int rc = uv_poll_init(loop, &listener->poll, fd);

    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    (void)uv_timer_init(loop, &listener->turn); /* never fails */
    listener->fd = fd;
    listener->is_open = true;
    listener->handles = 2;
    listener->poll.data = listener->turn.data = listener;
    watch(listener);
    return 0;
}

static int fail_busy(const struct listen_place *place, int port,
                     struct ctrun_error *err)
{
    char owner[PORT_OWNER_TEXT_MAX];

    if (place->ports.first && ct_port_range_has(&place->ports, port) &&
        (!place->addr.any.sa_family || ct_addr_port(&place->addr) == 0))
        return ct_fail(err, CTRUN_E_PORT_BUSY,
                       "ports %d-%d: all of them are taken; give a wider --port-range",
                       place->ports.first, place->ports.last);
    if (port_owner_describe(port, owner) < 0)
        return ct_fail(err, CTRUN_E_PORT_BUSY,
                       "port %d is taken: %s; choose another one or 0", port, owner);
    return ct_fail(
        err, CTRUN_E_PORT_BUSY,
        "port %d is taken: %s; choose another one or 0, or stop that process", port,
        owner);
}

int listener_open(struct listener *listener, uv_loop_t *loop,
                  const struct listen_place *place, uint16_t *port,
                  struct ctrun_error *err)
{
    struct ct_addr bound;
    char text[CT_ADDR_TEXT_MAX];
    int rc = listen_fd_open(place, &bound);

    if (rc >= 0 && (rc = take_fd(listener, loop, rc)) == 0) {
        *port = (uint16_t)ct_addr_port(&bound);
        return 0;
    }
    if (rc == -EADDRINUSE)
        return fail_busy(place, ct_addr_port(&bound), err);
    ct_addr_format(text, &bound);
    return ct_fail(err, rc, "listen on %s: %s", text, uv_strerror(rc));
}

void listener_retry(struct listener *listener)
{
    if (listener->is_open && !uv_is_active((uv_handle_t *)&listener->turn))
        watch(listener);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    if (--listener->handles == 0 && listener->on_closed)
        listener->on_closed(listener->context);
}

void listener_close(struct listener *listener, void (*on_closed)(void *context))
{
    listener->on_closed = on_closed;
    if (listener->is_open) {
        listener->is_open = false;
        uv_close((uv_handle_t *)&listener->poll, on_handle_closed);
        (void)close(listener->fd); /* libuv does not watch it any more */
        uv_close((uv_handle_t *)&listener->turn, on_handle_closed);
    } else if (on_closed) {
        on_closed(listener->context);
    }
}
