/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts: one address after the other until one takes the connection, or the deadline. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link/link_private.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/clock.h"

void link_connect(struct link *link, uint64_t timeout_ms)
{
    link->began_ms = ct_now_ms();
    link->deadline_ms = ct_deadline_ms(timeout_ms);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    link->server = 0;
    memset(&link->why, 0, sizeof link->why);
    link_set_state(link, LINK_CONNECTING, "asked to");
    loop_timer_set(link->talk, LINK_CONNECTING_FIRST_MS);
    /* callbacks come only from the loop, never from here */
    loop_timer_set(link->attempt, 0);
}

void link_seek(struct link *link, uint64_t timeout_ms)
{
    link_connect(link, timeout_ms);
    link->is_resuming = link->ticket.key != 0;
}

/* A connection that is UP stays, with its address: `servers` is used until the next attempt
 * calls `find`. */
void link_find_servers(struct link *link,
                       size_t (*find)(void *context, struct ct_addr *out, size_t max))
{
    if (link->server_count > CT_ADDRS_MAX)
        link->server_count = CT_ADDRS_MAX;
    if (link->servers != link->found)
        memcpy(link->found, link->servers, link->server_count * sizeof *link->found);
    if (link->server >= link->server_count)
        link->server = 0;
    link->servers = link->found;
    link->options.find_servers = find;
}

void link_on_talk(void *context)
{
    struct link *link = context;

    loop_timer_set(link->talk, LINK_CONNECTING_MS);
    if (link->options.on_connecting)
        link->options.on_connecting(link->options.context, &link->why,
                                    ct_now_ms() - link->began_ms);
}

static void set_socket_options(int fd, uint64_t lost_after_ms)
{
    const int on = 1;
    const unsigned timeout_ms = (unsigned)lost_after_ms;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* Data that cannot be delivered for so long break the connection: the kernel's own limit is
     * 15 minutes. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* If the server is another one than before, starts with its first address. */
static void find_servers(struct link *link)
{
    struct ct_addr now[CT_ADDRS_MAX] = {0};
    const size_t count = link->options.find_servers(link->options.context, now,
                                                    CT_ADDRS_MAX);

    if (count == link->server_count && memcmp(now, link->found, sizeof now) == 0)
        return;
    memcpy(link->found, now, sizeof now);
    link->server_count = count;
    link->server = 0;
}

static void try_server(struct link *link)
{
    uint64_t left_ms = (uint64_t)ct_left_ms(link->deadline_ms);
    const struct ct_addr *server;
    uint64_t limit_ms;
    int fd;

    if (link->options.find_servers)
        find_servers(link);
    if (link->is_cut) {
        link_fail_attempt(link, -ENETDOWN, LINK_CUT);
        return;
    }
    if (link->server_count == 0) {
        link_fail_connect(link, -EDESTADDRREQ);
        return;
    }
    server = &link->servers[link->server];
    fd = socket(server->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        link_fail_attempt(link, -errno, "socket");
        return;
    }
    set_socket_options(fd, link->options.hello->lost_after_ms);
    if (connect(fd, &server->any, server->length) < 0 && errno != EINPROGRESS) {
        const int rc = -errno;

        close(fd);
        link_fail_connect(link, rc);
        return;
    }
    /* Takes fd, on failure, too. */
    link->socket = loop_watch_open(link->options.loop, fd, link_on_socket, link);
    if (!link->socket) {
        link_fail_connect(link, -ENOMEM);
        return;
    }
    loop_watch_for(link->socket, LOOP_WRITE);
    limit_ms = link->is_resuming || link->options.find_servers ||
                       link->options.tries_ports
                   ? LINK_RESUME_ATTEMPT_MS
                   : LINK_ATTEMPT_MS;
    loop_timer_set(link->attempt, left_ms < limit_ms ? left_ms : limit_ms);
}

void link_on_attempt(void *context)
{
    struct link *link = context;

    /* A very short last attempt would only hide the reason of the one before. */
    if (ct_left_ms(link->deadline_ms) == 0 && link->why.code != 0)
        link_go_down(link, &link->why);
    else if (link->socket && link->state == LINK_GREETING)
        link_fail_attempt(link, -ETIMEDOUT, "connected, but it sent no answer");
    else if (link->socket)
        link_fail_connect(link, -ETIMEDOUT);
    else
        try_server(link);
}
