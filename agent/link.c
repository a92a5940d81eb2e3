/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/fence.h"
#include "agent/limits.h"
#include "agent/link_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

static const char *const state_names[] = {"down", "connecting", "greeting", "up"};

/* Which state may follow which. */
static const unsigned edges[] = {
    [LINK_DOWN] = 1u << LINK_CONNECTING,
    [LINK_CONNECTING] = 1u << LINK_GREETING | 1u << LINK_DOWN,
    [LINK_GREETING] = 1u << LINK_UP | 1u << LINK_CONNECTING | 1u << LINK_DOWN,
    [LINK_UP] = 1u << LINK_DOWN | 1u << LINK_CONNECTING, /* to resume */
};

void link_set_state(struct link *link, enum link_state state, const char *why)
{
    struct ct_event event;

    if (link->state == state)
        return;
    if (!(edges[link->state] & 1u << state))
        ct_err("link: no way from=%s to=%s", state_names[link->state],
               state_names[state]);
    ct_debug("link: %s -> %s (%s)", state_names[link->state], state_names[state], why);
    ct_event_begin(&event, "link_state");
    ct_event_str(&event, "from", state_names[link->state]);
    ct_event_str(&event, "to", state_names[state]);
    ct_event_str(&event, "why", why);
    ct_event_end(&event);
    link->state = state;
}

int link_open(struct link **out, const struct link_options *options,
              struct ctrun_error *err)
{
    struct link *link = ct_zalloc(sizeof *link);

    if (!link)
        return ct_fail(err, -ENOMEM, "link: out of memory");
    link->options = *options;
    link->handshake.token = options->token;
    link->handshake.uses_munge = options->uses_munge;
    link->handshake.wants_seal = options->wants_seal;
    link->servers = options->find_servers ? link->found : options->servers;
    link->server_count = options->find_servers ? 0 : options->server_count;
    link->step = -1;
    ct_buf_init(&link->in, LINK_IN_MAX_BYTES);
    ct_buf_init(&link->out, LINK_OUT_MAX_BYTES);
    link->attempt = loop_timer_open(options->loop, link_on_attempt, link);
    link->talk = loop_timer_open(options->loop, link_on_talk, link);
    link->heartbeat = loop_timer_open(options->loop, link_on_heartbeat, link);
    link->silence = loop_timer_open(options->loop, link_on_silence, link);
    if (!link->attempt || !link->talk || !link->heartbeat || !link->silence) {
        link_close(link, 0);
        return ct_fail(err, -ENOMEM, "link: out of memory");
    }
    *out = link;
    return 0;
}

void link_drop_socket(struct link *link)
{
    fence_set_socket(-1);
    link->is_direct = false;
    link->has_held = false;
    loop_watch_close(link->socket);
    link->socket = NULL;
    ct_buf_consume(&link->in, ct_buf_length(&link->in));
    ct_buf_consume(&link->out, ct_buf_length(&link->out));
}

void link_go_down(struct link *link, const struct ctrun_error *why)
{
    const struct ctrun_error copy =
        *why; /* may be link->why, and the callback may connect */

    link_drop_socket(link);
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    loop_timer_stop(link->heartbeat);
    loop_timer_stop(link->silence);
    link->was_up = link->state == LINK_UP || link->is_resuming;
    link->tried_ms = link->is_resuming ? ct_now_ms() - link->began_ms : 0;
    if (link->is_refused || !link->options.find_servers)
        link->ticket.key = 0;
    link->was_refused = link->is_refused;
    link->is_resuming = false;
    link->is_refused = false;
    link_set_state(link, LINK_DOWN, copy.text);
    link->options.on_down(link->options.context, &copy);
}

/* Whether the server ended in an orderly way stands in what has come and was not read, when it
 * was a write that failed. The rest is said again on another connection. */
static void hear_last_words(struct link *link)
{
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    struct ct_message message;
    struct ct_frame frame, inner;
    int taken = 1;
    ssize_t n;

    do {
        uint8_t bytes[8192];

        n = recv(loop_watch_fd(link->socket), bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0 && ct_buf_append(&link->in, bytes, (size_t)n) < 0)
            return;
        while ((taken = ct_frame_decode(ct_buf_data(&link->in),
                                        ct_buf_length(&link->in), &frame)) > 0) {
            const int rc = ct_seal_decode(&link->handshake.seal, &frame, plain, &inner);

            if (rc == 0 && inner.kind == CT_MESSAGE_ROSTER &&
                ct_message_decode(&inner, &message) == 0)
                link->options.on_message(link->options.context, &message);
            ct_buf_consume(&link->in, (size_t)taken);
            if (rc < 0)
                return;
        }
    } while (n > 0 && taken == 0);
}

void link_fail_connection(struct link *link, int rc, const char *what)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    if (link->state != LINK_UP) {
        link_fail_attempt(link, rc, what);
        return;
    }
    if (rc != -EPROTO && rc != -EBADMSG)
        hear_last_words(link);
    ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&why, CTRUN_E_LEADER_LOST, "the rendezvous at %s is gone: %s: %s",
                  address, what,
                  rc == -EPROTO || rc == -EBADMSG ? "broken message" : strerror(-rc));
    link->was_silent = link_is_silence(rc);
    if (rc != -EPROTO && link_can_resume(link))
        link_begin_resume(link, &why);
    else
        link_go_down(link, &why);
}

bool link_flush(struct link *link)
{
    while (ct_buf_length(&link->out) > 0) {
        const ssize_t n = send(loop_watch_fd(link->socket), ct_buf_data(&link->out),
                               ct_buf_length(&link->out), MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            link_fail_connection(link, -errno, "send");
            return false;
        }
        if (n < 0)
            break;
        ct_buf_consume(&link->out, (size_t)n);
    }
    loop_watch_for(link->socket,
                   LOOP_READ | (ct_buf_length(&link->out) > 0 ? LOOP_WRITE : 0u));
    return true;
}

/* Which member this is. */
static struct ct_resume make_resume(const struct link *link)
{
    if (!link->is_resuming)
        return (struct ct_resume){0};
    return (struct ct_resume){
        .id = link->ticket.id,
        .key = link->ticket.key,
        .generation = link->generation,
        .state = link->options.get_resume_state(link->options.context),
    };
}

static void greet(struct link *link)
{
    socklen_t length = sizeof(int);
    struct ct_resume resume;
    int rc = 0;

    if (getsockopt(loop_watch_fd(link->socket), SOL_SOCKET, SO_ERROR, &rc, &length) < 0)
        rc = errno;
    if (rc != 0) {
        link_fail_attempt(link, -rc, "connect");
        return;
    }
    link_set_state(link, LINK_GREETING, "connected");
    link->greeted_ms = ct_now_ms();
    resume = make_resume(link);
    rc = handshake_begin(&link->handshake, &resume, link->options.hello, &link->out);
    if (rc < 0)
        link_fail_attempt(link, rc, "hello");
    else
        (void)link_flush(link);
}

/* Takes one frame out of `in`. False when there is none, or the connection is another now. */
static bool take_frame(struct link *link)
{
    const struct loop_watch *socket = link->socket;
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    struct ct_message message;
    struct ct_frame frame, inner;
    int taken = ct_frame_decode(ct_buf_data(&link->in), ct_buf_length(&link->in),
                                &frame);
    int rc = taken;

    if (taken == 0)
        return false;
    if (taken > 0)
        rc = ct_seal_decode(&link->handshake.seal, &frame, plain, &inner);
    if (rc == 0)
        rc = ct_message_decode(&inner, &message);
    if (rc < 0 && rc != -ENOSYS) {
        link_fail_connection(link, rc, "receive");
        return false;
    }
    ct_buf_consume(&link->in,
                   (size_t)taken); /* before the callback, which may drop it all */
    if (rc != -ENOSYS)             /* else a newer server's: skip it */
        link_take_message(link, &message);
    return link->socket == socket && socket != NULL;
}

static void receive(struct link *link)
{
    uint8_t bytes[8192];
    const ssize_t n = recv(loop_watch_fd(link->socket), bytes, sizeof bytes, 0);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_fail_connection(link, n < 0 ? -errno : -ECONNRESET,
                             n < 0 ? "receive" : "closed");
        return;
    }
    rc = ct_buf_append(&link->in, bytes, (size_t)n);
    if (rc < 0) {
        link_fail_connection(link, rc, "receive");
        return;
    }
    while (take_frame(link))
        ;
}

void link_on_socket(void *context, unsigned events)
{
    struct link *link = context;

    if (link->state == LINK_CONNECTING) {
        greet(link);
        return;
    }
    if ((events & LOOP_WRITE) && !link_flush(link))
        return;
    if (events & LOOP_READ)
        receive(link);
}

void link_set_serving(struct link *link, bool is_serving)
{
    link->is_serving = is_serving;
}

uint64_t link_echo_age_ms(const struct link *link, uint64_t *server)
{
    *server = link->echoed_by;
    return link->echoed_by ? ct_now_ms() - link->echoed_ms : 0;
}

bool link_was_up(const struct link *link)
{
    return link->was_up;
}

uint64_t link_tried_ms(const struct link *link)
{
    return link->tried_ms;
}

bool link_was_refused(const struct link *link)
{
    return link->was_refused;
}

bool link_was_silent(const struct link *link)
{
    return link->was_silent;
}

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}

bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote)
{
    *remote = link->servers[link->server];
    local->length = sizeof local->v6;
    return link->state == LINK_UP &&
           getsockname(loop_watch_fd(link->socket), &local->any, &local->length) == 0;
}

void link_set_progress(struct link *link, uint64_t generation, int64_t step)
{
    link->generation = generation;
    link->step = step;
}

void link_send(struct link *link, const struct ct_message *message)
{
    int rc;

    if (link->state != LINK_UP)
        return;
    rc = ct_seal_encode(&link->handshake.seal, &link->out, message);
    if (rc < 0)
        link_fail_connection(link, rc, ct_message_name((int)message->kind));
    else
        (void)link_flush(link);
}

void link_close(struct link *link, uint64_t timeout_ms)
{
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);

    if (!link)
        return;
    while (link->state == LINK_UP && ct_buf_length(&link->out) > 0) {
        struct pollfd ask = {.fd = loop_watch_fd(link->socket), .events = POLLOUT};
        const ssize_t n = send(ask.fd, ct_buf_data(&link->out),
                               ct_buf_length(&link->out), MSG_NOSIGNAL);

        if (n > 0)
            ct_buf_consume(&link->out, (size_t)n);
        else if (n < 0 && errno == EAGAIN && poll(&ask, 1, ct_left_ms(deadline_ms)) > 0)
            continue;
        else
            break;
    }
    loop_watch_close(link->socket);
    loop_timer_close(link->attempt);
    loop_timer_close(link->talk);
    loop_timer_close(link->heartbeat);
    loop_timer_close(link->silence);
    ct_buf_deinit(&link->in);
    ct_buf_deinit(&link->out);
    handshake_wipe(&link->handshake);
    free(link);
}
