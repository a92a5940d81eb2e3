/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts: one address after the other until one takes the connection, or the deadline. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/link_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

void link_connect(struct link *link, uint64_t timeout_ms)
{
    link->began_ms = ct_now_ms();
    link->deadline_ms = ct_deadline_ms(timeout_ms);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    link->server = 0;
    memset(&link->why, 0, sizeof link->why);
    link_set_state(link, LINK_CONNECTING, "asked to");
    loop_timer_set(link->talk, LINK_CONNECTING_FIRST_MS);
    loop_timer_set(link->attempt, 0); /* callbacks come from the loop only */
}

void link_seek(struct link *link, uint64_t timeout_ms)
{
    link_connect(link, timeout_ms);
    link->is_resuming = link->ticket.key != 0;
}

void link_follow(struct link *link, const struct ct_addr *servers, size_t count,
                 uint64_t timeout_ms)
{
    if (count > CT_ADDRS_MAX)
        count = CT_ADDRS_MAX;
    if (count > 0)
        memcpy(link->found, servers, count * sizeof *servers);
    link->servers = count > 0 ? link->found : link->options.servers;
    link->server_count = count > 0 ? count : link->options.server_count;
    link->is_following = true;
    link->ticket.key = 0;
    link_connect(link, timeout_ms);
}

void link_on_talk(void *context)
{
    struct link *link = context;

    loop_timer_set(link->talk, LINK_CONNECTING_MS);
    if (link->options.on_connecting)
        link->options.on_connecting(link->options.context, link->why.text,
                                    ct_now_ms() - link->began_ms);
}

bool link_is_silence(int rc)
{
    return rc == -ETIMEDOUT || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* A random time from half of this on. */
static uint64_t spread(uint64_t time_ms)
{
    uint16_t random = 0;

    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* 0 will do */
    return time_ms / 2 + random % (time_ms / 2 + 1);
}

void link_fail_attempt(struct link *link, int rc, const char *what)
{
    char address[CT_ADDR_TEXT_MAX] = "no address";
    uint64_t pause_ms = 0;

    if (link->server_count > 0)
        ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&link->why, CTRUN_E_UNREACHABLE, "%s: %s: %s", address, what,
                  strerror(-rc));
    ct_debug("link: attempt failed: %s", link->why.text);
    link_drop_socket(link);
    if (ct_left_ms(link->deadline_ms) == 0 ||
        (link->server_count == 0 && !link->options.find_servers)) {
        link_go_down(link, &link->why);
        return;
    }
    link_set_state(link, LINK_CONNECTING, link->why.text);
    if (++link->server >= link->server_count) {
        link->server = 0;
        pause_ms = link->options.find_servers ? LINK_PAUSE_FOUND_MS : link->pause_ms;
        link->pause_ms = pause_ms * 2 < LINK_PAUSE_MAX_MS ? pause_ms * 2
                                                          : LINK_PAUSE_MAX_MS;
    }
    if (link->is_resuming) { /* all nodes of a run have lost the same server */
        link->was_silent = link_is_silence(rc);
        pause_ms = spread(pause_ms < LINK_RESUME_PAUSE_MS ? pause_ms
                                                          : LINK_RESUME_PAUSE_MS);
    }
    if (link->is_following && pause_ms > LINK_RESUME_PAUSE_MS)
        pause_ms = LINK_RESUME_PAUSE_MS;
    if (pause_ms > (uint64_t)ct_left_ms(link->deadline_ms))
        pause_ms = (uint64_t)ct_left_ms(link->deadline_ms);
    loop_timer_set(link->attempt, pause_ms);
}

static void set_socket_options(int fd, uint64_t lost_after_ms)
{
    const int on = 1;
    const unsigned timeout_ms = (unsigned)lost_after_ms;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* What cannot be delivered for so long fails: the kernel's own patience is 15 minutes. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Another host than a moment ago: from its first address on. */
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
    if (link->server_count == 0) {
        link_fail_attempt(link, -EDESTADDRREQ, "connect");
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
        link_fail_attempt(link, rc, "connect");
        return;
    }
    link->socket = loop_watch_open(link->options.loop, fd, link_on_socket, link);
    if (!link->socket) {
        link_fail_attempt(link, -ENOMEM, "connect");
        return;
    }
    loop_watch_for(link->socket, LOOP_WRITE);
    limit_ms = link->is_resuming || link->is_following || link->options.find_servers
                   ? LINK_RESUME_ATTEMPT_MS
                   : LINK_ATTEMPT_MS;
    loop_timer_set(link->attempt, left_ms < limit_ms ? left_ms : limit_ms);
}

void link_begin_resume(struct link *link, const struct ctrun_error *why)
{
    link_drop_socket(link);
    loop_timer_stop(link->heartbeat);
    link->is_resuming = true;
    link->why = *why;
    link->began_ms = ct_now_ms();
    link->deadline_ms = link_resume_end_ms(link);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    link_set_state(link, LINK_CONNECTING, why->text);
    loop_timer_set(link->attempt, spread(LINK_PAUSE_FIRST_MS));
    loop_timer_set(link->silence, (uint64_t)ct_left_ms(link->deadline_ms));
    if (link->options.on_break)
        link->options.on_break(link->options.context, why,
                               (uint64_t)ct_left_ms(link->deadline_ms));
}

void link_on_attempt(void *context)
{
    struct link *link = context;

    /* A last try that was cut short would only hide the reason. */
    if (ct_left_ms(link->deadline_ms) == 0 && link->why.code != 0)
        link_go_down(link, &link->why);
    else if (link->socket)
        link_fail_attempt(link, -ETIMEDOUT,
                          link->state == LINK_GREETING ? "no welcome" : "connect");
    else
        try_server(link);
}
