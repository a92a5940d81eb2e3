/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include "rendezvous/limits.h"
#include "rendezvous/port_owner.h"

static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *listener = stream->data;

    if (status == 0) /* else this one connection went away before we took it */
        listener->on_connection(stream, listener->context);
}

static struct ct_addr any_v6(int port)
{
    return (struct ct_addr){.v6 = {.sin6_family = AF_INET6,
                                   .sin6_addr = in6addr_any,
                                   .sin6_port = htons((uint16_t)port)},
                            .length = sizeof(struct sockaddr_in6)};
}

static struct ct_addr any_v4(int port)
{
    return (struct ct_addr){
        .v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)},
        .length = sizeof(struct sockaddr_in)};
}

/* Binding may fail as late as in listen(): libuv keeps EADDRINUSE until then. */
static int try_open(struct listener *listener, uv_loop_t *loop,
                    const struct ct_addr *addr)
{
    int rc = uv_tcp_init(loop, &listener->tcp);

    if (rc < 0)
        return rc;
    listener->is_open = true;
    listener->tcp.data = listener;
    if ((rc = uv_tcp_bind(&listener->tcp, &addr->any, 0)) < 0)
        return rc;
    return uv_listen((uv_stream_t *)&listener->tcp, SERVER_BACKLOG, on_connection);
}

static int find_port(struct listener *listener, uint16_t *port)
{
    struct ct_addr bound = {.length = 0};
    int length = sizeof bound.v6;
    int rc = uv_tcp_getsockname(&listener->tcp, &bound.any, &length);

    if (rc < 0)
        return rc;
    bound.length = (socklen_t)length;
    *port = (uint16_t)ct_addr_port(&bound);
    return 0;
}

/* A machine without IPv6 knows no such socket. */
static bool has_v6(void)
{
    struct ct_addr addr = any_v6(0);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool works;

    if (fd < 0)
        return false;
    works = bind(fd, &addr.any, addr.length) == 0;
    (void)close(fd); /* nothing was written to it */
    return works;
}

int listener_open(struct listener *listener, uv_loop_t *loop,
                  const struct ct_addr *addr, uint16_t *port, struct ctrun_error *err)
{
    int wanted = addr ? ct_addr_port(addr) : 0;
    struct ct_addr bind_to;
    char text[CT_ADDR_TEXT_MAX], owner[PORT_OWNER_TEXT_MAX];
    int rc;

    if (addr && ct_addr_is_loopback(addr))
        bind_to = *addr;
    else
        bind_to = has_v6() ? any_v6(wanted) : any_v4(wanted);
    if ((rc = try_open(listener, loop, &bind_to)) == 0)
        rc = find_port(listener, port);
    if (rc == 0)
        return 0;
    ct_addr_format(text, &bind_to);
    if (rc != UV_EADDRINUSE)
        return ct_fail(err, rc, "listen on %s: %s", text, uv_strerror(rc));
    if (port_owner_describe(wanted, owner) < 0)
        return ct_fail(err, CTRUN_E_PORT_BUSY,
                       "port %d: it is taken by a process that we may not see; choose "
                       "another one or 0",
                       wanted);
    return ct_fail(
        err, CTRUN_E_PORT_BUSY,
        "port %d: it is taken by %s; choose another one or 0, or stop that process",
        wanted, owner);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    if (listener->on_closed)
        listener->on_closed(listener->context);
}

void listener_close(struct listener *listener, void (*on_closed)(void *context))
{
    listener->on_closed = on_closed;
    if (listener->is_open) {
        listener->is_open = false;
        listener->tcp.data = listener;
        uv_close((uv_handle_t *)&listener->tcp, on_handle_closed);
    } else if (on_closed) {
        on_closed(listener->context);
    }
}
