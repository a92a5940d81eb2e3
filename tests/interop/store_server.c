/* SPDX-License-Identifier: Apache-2.0 */
/* A TCPStore for tests and benchmarks: the engine behind one epoll loop, nothing else.
 *
 *     store_server [PORT]      0 (the default): any; loopback, v4 and v6
 *
 * Prints its port, serves until standard input ends, and leaves nothing behind. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/list.h"

enum {
    READ_BYTES = 64 << 10,
    EVENTS = 256
};

struct conn {
    struct ct_list link; /* in server.dirty while it has output to be sent */
    struct store_client *client;
    struct server *server;
    int fd;
    bool is_paused;
    bool is_closing;
};

struct server {
    struct store *store;
    int epoll;
    int listener;
    struct ct_list dirty;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void on_output(void *context)
{
    struct conn *conn = context;

    ct_list_remove(&conn->link);
    ct_list_add(&conn->server->dirty, &conn->link);
}

static void watch(struct conn *conn, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = conn};

    if (epoll_ctl(conn->server->epoll, EPOLL_CTL_MOD, conn->fd, &event) < 0)
        die("epoll_ctl");
}

static void drop(struct conn *conn)
{
    ct_list_remove(&conn->link);
    store_remove_client(conn->client);
    close(conn->fd);
    free(conn);
}

static void accept_one(struct server *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    struct conn *conn;
    int on = 1;

    if (fd < 0)
        return;
    if (!(conn = ct_zalloc(sizeof *conn)) ||
        !(conn->client = store_add_client(server->store, on_output, conn)))
        die("memory");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ct_list_init(&conn->link);
    conn->server = server;
    conn->fd = fd;
    event.data.ptr = conn;
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
}

/* Sends what can be sent. False when the connection is gone. */
static bool flush(struct conn *conn)
{
    struct ct_buf *out = store_output(conn->client);

    for (;;) {
        ssize_t n = 0;

        if (ct_buf_length(out))
            n = send(conn->fd, ct_buf_data(out), ct_buf_length(out), MSG_NOSIGNAL);
        if (n > 0)
            ct_buf_consume(out, (size_t)n);
        if (n < 0 && errno != EAGAIN) {
            drop(conn);
            return false;
        }
        if (conn->is_paused && !conn->is_closing) {
            int rc = store_resume(conn->client);

            conn->is_paused = rc == STORE_PAUSED;
            conn->is_closing = rc < 0;
        }
        if (n < 0 || !ct_buf_length(out))
            break;
    }
    if (conn->is_closing && !ct_buf_length(out)) {
        drop(conn);
        return false;
    }
    watch(conn, (conn->is_paused || conn->is_closing ? 0 : EPOLLIN) |
                    (ct_buf_length(out) ? EPOLLOUT : 0));
    return true;
}

static void receive(struct conn *conn)
{
    static uint8_t bytes[READ_BYTES];
    ssize_t n = recv(conn->fd, bytes, sizeof bytes, 0);
    int rc;

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        drop(conn);
        return;
    }
    rc = store_receive(conn->client, bytes, (size_t)n);
    conn->is_paused = rc == STORE_PAUSED;
    conn->is_closing = rc < 0;
    if (rc != 0 || ct_buf_length(store_output(conn->client)))
        (void)flush(conn);
}

static void flush_dirty(struct server *server)
{
    while (!ct_list_is_empty(&server->dirty)) {
        struct conn *conn = ct_list_entry(server->dirty.next, struct conn, link);

        ct_list_remove(&conn->link);
        (void)flush(conn);
    }
}

static void listen_on(struct server *server, uint16_t port)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    socklen_t size = sizeof addr;
    int off = 0;
    int on = 1;

    server->listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listener < 0)
        die("socket");
    setsockopt(server->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    addr.sin6_addr = in6addr_any;
    if (bind(server->listener, (struct sockaddr *)&addr, size) < 0 ||
        listen(server->listener, SOMAXCONN) < 0 ||
        getsockname(server->listener, (struct sockaddr *)&addr, &size) < 0)
        die("listen");
    printf("%d\n", ntohs(addr.sin6_port));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct server server;
    struct epoll_event events[EVENTS];
    struct epoll_event event = {.events = EPOLLIN};

    ct_list_init(&server.dirty);
    if (store_create(&server.store) < 0 ||
        (server.epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        die("create");
    listen_on(&server, (uint16_t)(argc > 1 ? strtol(argv[1], NULL, 10) : 0));
    event.data.ptr = &server.listener;
    epoll_ctl(server.epoll, EPOLL_CTL_ADD, server.listener, &event);
    event.data.ptr = &server; /* standard input */
    if (epoll_ctl(server.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) < 0)
        die("standard input must be a pipe or a terminal");
    for (;;) {
        int n = epoll_wait(server.epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            struct conn *conn = events[i].data.ptr;
            char byte;

            if (events[i].data.ptr == &server) {
                if (read(STDIN_FILENO, &byte, 1) > 0)
                    continue;
                store_destroy(server.store);
                return 0;
            }
            if (events[i].data.ptr == &server.listener)
                accept_one(&server);
            else if (!(events[i].events & EPOLLOUT) || flush(conn))
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                    receive(conn);
        }
        flush_dirty(&server);
    }
}
