/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/swarm.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"

enum {
    READ_BYTES = 64 << 10,
    EVENTS = 256,
    IN_MAX_BYTES = 1 << 20,
    OUT_MAX_BYTES = 1 << 20
};

static void raise_open_files(int count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        err(1, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < (rlim_t)count + 16)
        errx(1, "%d connections, but only %llu files may be open", count,
             (unsigned long long)limit.rlim_cur);
}

static void dial(struct swarm *swarm, struct swarm_conn *conn, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    const int on = 1;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        err(1, "connection %d", conn->index);
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(swarm->epoll, EPOLL_CTL_ADD, conn->fd, &event) < 0)
        err(1, "epoll");
    ct_buf_init(&conn->in, IN_MAX_BYTES);
    swarm->on_open(swarm, conn);
}

void swarm_open(struct swarm *swarm, int port, int count)
{
    raise_open_files(count);
    swarm->count = count;
    swarm->conns = calloc((size_t)count, sizeof *swarm->conns);
    swarm->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!swarm->conns || swarm->epoll < 0)
        err(1, "swarm");
    ct_buf_init(&swarm->out, OUT_MAX_BYTES);
    for (int i = 0; i < count; i++) {
        swarm->conns[i].index = i;
        dial(swarm, &swarm->conns[i], port);
    }
}

void swarm_send(struct swarm *swarm, struct swarm_conn *conn)
{
    while (ct_buf_length(&swarm->out)) {
        ssize_t n = write(conn->fd, ct_buf_data(&swarm->out),
                          ct_buf_length(&swarm->out));

        if (n <= 0)
            err(1, "write to connection %d", conn->index);
        ct_buf_consume(&swarm->out, (size_t)n);
    }
}

static void take(struct swarm *swarm, struct swarm_conn *conn)
{
    static uint8_t bytes[READ_BYTES];
    ssize_t n = recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        errx(1, "the server closed connection %d", conn->index);
    if (ct_buf_append(&conn->in, bytes, (size_t)n) < 0)
        errx(1, "connection %d: more than %d bytes", conn->index, IN_MAX_BYTES);
    swarm->on_bytes(swarm, conn);
}

static void turn(struct swarm *swarm, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(swarm->epoll, events, EVENTS, timeout_ms);

    for (int i = 0; i < n; i++)
        if (((struct swarm_conn *)events[i].data.ptr)->fd >= 0)
            take(swarm, events[i].data.ptr);
}

void swarm_idle(struct swarm *swarm, const int *left, int ms)
{
    const uint64_t end_ms = ct_now_ms() + (uint64_t)ms;
    int left_ms;

    while (*left > 0 && (left_ms = ct_left_ms(end_ms)) > 0)
        turn(swarm, left_ms);
}

void swarm_run(struct swarm *swarm, const int *left, int deadline_ms, const char *what)
{
    swarm_idle(swarm, left, deadline_ms);
    if (*left > 0)
        errx(1, "%d of %d still wait for %s after %d ms", *left, swarm->count, what,
             deadline_ms);
}

void swarm_drop(struct swarm_conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

void swarm_close(struct swarm *swarm)
{
    for (int i = 0; i < swarm->count; i++) {
        swarm_drop(&swarm->conns[i]);
        ct_buf_deinit(&swarm->conns[i].in);
    }
    free(swarm->conns);
    close(swarm->epoll);
    ct_buf_deinit(&swarm->out);
}
