/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/client.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"

enum {
    /* Limit of one attempt while other addresses or attempts are left: a host that is down does not
     * answer at all. */
    DIAL_MAX_MS = 10000,
};

bool ct_client_is_passing(int rc)
{
    switch (-rc) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL: /* no free local port; IPv6 not up yet */
    case EAGAIN:
    case -CTRUN_E_DNS: return true;
    default: return false;
    }
}

/* ---- Connecting ------------------------------------------------------------------------- */

int ct_client_poll(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd item = {.fd = fd, .events = events};

    for (;;) {
        int n = poll(&item, 1, ct_left_ms(deadline_ms));

        if (n > 0)
            return item.revents;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && ct_left_ms(deadline_ms) == 0)
            return -ETIMEDOUT;
    }
}

/* A connection to a free port of this machine can connect to itself (simultaneous open). */
static bool is_own_mirror(int fd)
{
    struct ct_addr local = {.length = sizeof local.v6};
    struct ct_addr peer = {.length = sizeof peer.v6};

    return getsockname(fd, &local.any, &local.length) == 0 &&
           getpeername(fd, &peer.any, &peer.length) == 0 &&
           ct_addr_port(&local) == ct_addr_port(&peer) &&
           ct_addr_is_same_host(&local, &peer);
}

static int finish_connect(int fd, uint64_t deadline_ms)
{
    int error = 0;
    socklen_t size = sizeof error;
    int rc;

    if ((rc = ct_client_poll(fd, POLLOUT, deadline_ms)) < 0)
        return rc;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return -errno;
    return -error;
}

int ct_client_dial(const struct ct_addr *addr, uint64_t deadline_ms)
{
    int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, &addr->any, addr->length) < 0)
        rc = errno == EINPROGRESS || errno == EINTR ? finish_connect(fd, deadline_ms)
                                                    : -errno;
    if (rc == 0 && is_own_mirror(fd))
        rc = -ECONNREFUSED;
    if (rc < 0) {
        (void)close(fd); /* nothing was sent */
        return rc;
    }
    /* Without it everything still works, only slower. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int ct_client_connect(const char *host, int port, uint64_t deadline_ms,
                      struct ct_addr *used, struct ctrun_error *err)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    int count = ct_addr_resolve(host, port, addrs, CT_ADDRS_MAX, err);
    int rc = count;

    for (int i = 0; i < count; i++) {
        uint64_t until = ct_deadline_ms(DIAL_MAX_MS);

        rc = ct_client_dial(&addrs[i], until < deadline_ms ? until : deadline_ms);
        if (rc >= 0) {
            if (used)
                *used = addrs[i];
            return rc;
        }
        if (i == count - 1) {
            char text[CT_ADDR_TEXT_MAX];

            ct_addr_format(text, &addrs[i]);
            return ct_fail(err, rc, "%s: %s", text, strerror(-rc));
        }
    }
    return rc;
}

/* ---- Bytes ------------------------------------------------------------------------------ */

ssize_t ct_client_read_some(int fd, void *data, size_t size)
{
    ssize_t n;

    do
        n = recv(fd, data, size, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t ct_client_write_some(int fd, const void *data, size_t length)
{
    ssize_t n;

    do
        n = send(fd, data, length, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}
