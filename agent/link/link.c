/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of the link, its settings, and queries of its state. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link/link_private.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

/* Objects that the options point to are kept, and outlive the link; the link owns timers and
 * buffers. It has no socket yet: link_connect() opens one. */
int link_open(struct link **out, const struct link_options *options,
              struct ctrun_error *err)
{
    struct link *link = ct_secret_zalloc(sizeof *link); /* holds the token */

    if (!link)
        return ct_fail(err, -ENOMEM, "link: out of memory");
    link->options = *options;
    link->handshake.token = options->token;
    link->handshake.uses_munge = options->uses_munge;
    link->handshake.wants_seal = options->wants_seal;
    link->servers = options->find_servers ? link->found : options->servers;
    link->server_count = options->find_servers ? 0 : options->server_count;
    link->step = -1;
    link->lease.is_replaceable = options->find_servers || options->may_be_replaced;
    ct_buf_init(&link->in, LINK_IN_MAX_BYTES);
    ct_buf_init(&link->out, LINK_OUT_MAX_BYTES);
    link->attempt = loop_timer_open(options->loop, link_on_attempt, link);
    link->talk = loop_timer_open(options->loop, link_on_talk, link);
    link->heartbeat = loop_timer_open(options->loop, link_on_heartbeat, link);
    link->silence = loop_timer_open(options->loop, link_on_silence, link);
    link->slow = loop_timer_open(options->loop, link_on_ripe, link);
    if (!link->slow || !link->attempt || !link->talk || !link->heartbeat ||
        !link->silence) {
        link_close(link, 0);
        return ct_fail(err, -ENOMEM, "link: out of memory");
    }
    *out = link;
    return 0;
}

bool link_was_up(const struct link *link)
{
    return link->was_up;
}

uint64_t link_tried_ms(const struct link *link)
{
    return link->tried_ms;
}

bool link_was_silent(const struct link *link)
{
    return link->was_silent;
}

const char *link_server_host(const struct link *link)
{
    return link->server_host;
}

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}

uint64_t link_instance(const struct link *link, uint64_t *generation)
{
    *generation = link->last_generation;
    return link->instance ? link->instance : link->welcomed;
}

bool link_is_at_ctrund(const struct link *link)
{
    return link->welcomed & CT_INSTANCE_AT_CTRUND;
}

uint64_t link_deadline_ms(const struct link *link)
{
    return node_lease_deadline_ms(&link->lease);
}

/* False during an attempt: it may not become a connection. */
bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote)
{
    *remote = link->servers[link->server];
    local->length = sizeof local->v6;
    return link->socket && link->state != LINK_CONNECTING &&
           getsockname(loop_watch_fd(link->socket), &local->any, &local->length) == 0;
}

void link_set_progress(struct link *link, uint64_t generation, int64_t step)
{
    link->generation = generation;
    link->step = step;
}

void link_set_moved(struct link *link, uint64_t moved_ms)
{
    link->moved_ms = moved_ms;
}

/* Signals are still handled: one must not end the wait. */
static bool has_room(int fd, uint64_t deadline_ms)
{
    struct pollfd ask = {.fd = fd, .events = POLLOUT};
    int n;

    do
        n = poll(&ask, 1, ct_left_ms(deadline_ms));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

/* The loop has ended by now, so this function may block: the last message of a node, LEAVE or
 * STOPPED, is in the queue, and a server that does not get it waits a whole lease for this node. */
void link_close(struct link *link, uint64_t timeout_ms)
{
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);

    if (!link)
        return;
    while (link->state == LINK_UP && ct_buf_length(&link->out) > 0) {
        const int fd = loop_watch_fd(link->socket);
        const ssize_t n = send(fd, ct_buf_data(&link->out), ct_buf_length(&link->out),
                               MSG_NOSIGNAL);

        if (n > 0)
            ct_buf_consume(&link->out, (size_t)n);
        else if (n == 0 || errno != EAGAIN || !has_room(fd, deadline_ms))
            break;
    }
    loop_watch_close(link->socket);
    loop_timer_close(link->attempt);
    loop_timer_close(link->talk);
    loop_timer_close(link->heartbeat);
    loop_timer_close(link->silence);
    loop_timer_close(link->slow);
    ct_buf_deinit(&link->in);
    ct_buf_deinit(&link->out);
    handshake_wipe(&link->handshake);
    ct_secret_free(link);
}
