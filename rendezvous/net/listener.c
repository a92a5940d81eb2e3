/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/listener.h"

#include <errno.h>
#include <unistd.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/net/port_owner.h"

static void on_turn(uv_timer_t *timer)
{
    struct listener *listener = timer->data;
    const bool was_held = listener->is_held;

    listener->count = 0;
    listener->is_held = false;
    if (was_held)
        listener_retry(listener);
}

/* Until this connection is accepted, libuv holds it back, and the kernel the others. */
static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *listener = stream->data;

    if (status != 0)
        return; /* the connection was closed before it was accepted */
    if (listener->count++ == 0)
        (void)uv_timer_start(&listener->turn, on_turn, 1, 0); /* open: cannot fail */
    listener->is_held = listener->count > LISTENER_BURST;
    if (!listener->is_held)
        listener->on_connection(stream, listener->context);
}

/* Gives libuv a socket that listens already: libuv's own bind reports a busy port too late to try
 * the next one. */
static int take_fd(struct listener *listener, uv_loop_t *loop, int fd)
{
    int rc = uv_tcp_init(loop, &listener->tcp);

    if (rc == 0) {
        (void)uv_timer_init(loop, &listener->turn); /* never fails */
        listener->is_open = true;
        listener->handles = 2;
        listener->tcp.data = listener->turn.data = listener;
        rc = uv_tcp_open(&listener->tcp, fd);
    }
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    return uv_listen((uv_stream_t *)&listener->tcp, SERVER_BACKLOG, on_connection);
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
    uv_os_fd_t fd;

    if (listener->is_open && !listener->is_held &&
        uv_fileno((uv_handle_t *)&listener->tcp, &fd) == 0)
        on_connection((uv_stream_t *)&listener->tcp, 0);
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
        uv_close((uv_handle_t *)&listener->tcp, on_handle_closed);
        uv_close((uv_handle_t *)&listener->turn, on_handle_closed);
    } else if (on_closed) {
        on_closed(listener->context);
    }
}
