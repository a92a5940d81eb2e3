/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/listen_fd.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "rendezvous/net/conn_limits.h"
#include "worker_sdk/net/tcp.h"

enum {
    LISTEN_TRIES = 5,
    LISTEN_PAUSE_MS = 11, /* at most; a prime, so that nearby pids differ */
};

/* True if the address means all addresses. */
static bool is_all(const struct ct_addr *addr)
{
    if (addr->any.sa_family == AF_INET)
        return addr->v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return addr->any.sa_family != AF_INET6 ||
           IN6_IS_ADDR_UNSPECIFIED(&addr->v6.sin6_addr);
}

static struct ct_addr any_of(sa_family_t family)
{
    struct ct_addr any = {.any.sa_family = family};

    any.length = family == AF_INET ? sizeof any.v4 : sizeof any.v6;
    return any;
}

/* Two processes that bind one port at the same instant may both fail in listen(): Linux marks a
 * socket as listening before it looks for another listening one. The pause differs between
 * processes. If the port was really taken, bind() has failed before. */
static int listen_first(int fd)
{
    int rc = listen(fd, SERVER_BACKLOG);

    for (int i = 1; rc < 0 && errno == EADDRINUSE && i <= LISTEN_TRIES; i++) {
        (void)poll(NULL, 0, 1 + (getpid() * i) % LISTEN_PAUSE_MS);
        rc = listen(fd, SERVER_BACKLOG);
    }
    return rc;
}

/* SO_REUSEADDR: the port of a server that has just ended, whose connections linger. */
static int open_at(const struct ct_addr *addr, bool is_dual)
{
    const int on = 1, off = 0;
    int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = 0;

    if (fd < 0)
        return -errno;
    ct_tcp_leave_bbr(fd);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (is_dual && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0) ||
        bind(fd, &addr->any, addr->length) < 0 || listen_first(fd) < 0)
        rc = -errno;
    if (rc == 0)
        return fd;
    (void)close(fd); /* nothing was written to it */
    return rc;
}

static int open_port(struct ct_addr *addr, bool is_any, int port)
{
    int fd;

    if (!is_any) {
        ct_addr_set_port(addr, port);
        return open_at(addr, false);
    }
    *addr = any_of(AF_INET6);
    ct_addr_set_port(addr, port);
    fd = open_at(addr, true);
    if (fd >= 0 || fd == -EADDRINUSE || fd == -EACCES)
        return fd;
    *addr = any_of(AF_INET); /* a kernel without IPv6 */
    ct_addr_set_port(addr, port);
    return open_at(addr, false);
}

static int learn_port(int fd, struct ct_addr *bound)
{
    struct ct_addr name = {.length = sizeof name.v6};

    if (getsockname(fd, &name.any, &name.length) < 0)
        return -errno;
    ct_addr_set_port(bound, ct_addr_port(&name));
    return 0;
}

int listen_fd_open(const struct listen_place *place, struct ct_addr *bound)
{
    const bool is_any = is_all(&place->addr);
    const int wanted = place->addr.any.sa_family ? ct_addr_port(&place->addr) : 0;
    const int tries = wanted ? 1 : ct_port_range_count(&place->ports);
    int fd = -EADDRINUSE;
    int rc;

    *bound = place->addr;
    for (int i = 0; i < tries && fd == -EADDRINUSE; i++)
        fd = open_port(bound, is_any,
                       wanted ? wanted
                              : ct_port_range_at(&place->ports, (uint32_t)getpid(), i));
    if (fd < 0)
        return fd;
    if ((rc = learn_port(fd, bound)) == 0)
        return fd;
    (void)close(fd);
    return rc;
}
