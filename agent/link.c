/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
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

static void try_server(struct link *link);
static void on_attempt_timer(void *context);
static void on_talk(void *context);
static void on_socket(void *context, unsigned events);

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
    link->attempt = loop_timer_open(options->loop, on_attempt_timer, link);
    link->talk = loop_timer_open(options->loop, on_talk, link);
    link->heartbeat = loop_timer_open(options->loop, link_on_heartbeat, link);
    link->silence = loop_timer_open(options->loop, link_on_silence, link);
    if (!link->attempt || !link->talk || !link->heartbeat || !link->silence) {
        link_close(link, 0);
        return ct_fail(err, -ENOMEM, "link: out of memory");
    }
    *out = link;
    return 0;
}

static void drop_socket(struct link *link)
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

    drop_socket(link);
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    loop_timer_stop(link->heartbeat);
    loop_timer_stop(link->silence);
    link->was_up = link->state == LINK_UP || link->is_resuming;
    link->tried_ms = link->is_resuming ? ct_now_ms() - link->began_ms : 0;
    if (link->is_refused || !link->options.find_servers)
        link->ticket.key = 0;
    link->is_resuming = false;
    link->is_refused = false;
    link_set_state(link, LINK_DOWN, copy.text);
    link->options.on_down(link->options.context, &copy);
}

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

static void on_talk(void *context)
{
    struct link *link = context;

    loop_timer_set(link->talk, LINK_CONNECTING_MS);
    if (link->options.on_connecting)
        link->options.on_connecting(link->options.context, link->why.text,
                                    ct_now_ms() - link->began_ms);
}

/* No word from the server's host either: it may be there, and the way to it broken. */
static bool is_silence(int rc)
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

/* The attempt failed: next address at once, and after the last one a pause. */
static void fail_attempt(struct link *link, int rc, const char *what)
{
    char address[CT_ADDR_TEXT_MAX] = "no address";
    uint64_t pause_ms = 0;

    if (link->server_count > 0)
        ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&link->why, CTRUN_E_UNREACHABLE, "%s: %s: %s", address, what,
                  strerror(-rc));
    ct_debug("link: attempt failed: %s", link->why.text);
    drop_socket(link);
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
    if (link->is_resuming)
        link->was_silent = is_silence(rc);
    if (link->is_resuming) /* all nodes of a run have lost the same server */
        pause_ms = spread(pause_ms < LINK_RESUME_PAUSE_MS ? pause_ms
                                                          : LINK_RESUME_PAUSE_MS);
    if (pause_ms > (uint64_t)ct_left_ms(link->deadline_ms))
        pause_ms = (uint64_t)ct_left_ms(link->deadline_ms);
    loop_timer_set(link->attempt, pause_ms);
}

static void on_attempt_timer(void *context)
{
    struct link *link = context;

    /* A last try that was cut short would only hide the reason. */
    if (ct_left_ms(link->deadline_ms) == 0 && link->why.code != 0)
        link_go_down(link, &link->why);
    else if (link->socket)
        fail_attempt(link, -ETIMEDOUT,
                     link->state == LINK_GREETING ? "no welcome" : "connect");
    else
        try_server(link);
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
        fail_attempt(link, -EDESTADDRREQ, "connect");
        return;
    }
    server = &link->servers[link->server];
    fd = socket(server->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        fail_attempt(link, -errno, "socket");
        return;
    }
    set_socket_options(fd, link->options.hello->lost_after_ms);
    if (connect(fd, &server->any, server->length) < 0 && errno != EINPROGRESS) {
        const int rc = -errno;

        close(fd);
        fail_attempt(link, rc, "connect");
        return;
    }
    link->socket = loop_watch_open(link->options.loop, fd, on_socket, link);
    if (!link->socket) {
        fail_attempt(link, -ENOMEM, "connect");
        return;
    }
    loop_watch_for(link->socket, LOOP_WRITE);
    limit_ms = link->is_resuming || link->options.find_servers ? LINK_RESUME_ATTEMPT_MS
                                                               : LINK_ATTEMPT_MS;
    loop_timer_set(link->attempt, left_ms < limit_ms ? left_ms : limit_ms);
}

/* At once, but not all nodes in the same instant. */
static void begin_resume(struct link *link, const struct ctrun_error *why)
{
    drop_socket(link);
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

void link_fail_connection(struct link *link, int rc, const char *what)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    if (link->state != LINK_UP) {
        fail_attempt(link, rc, what);
        return;
    }
    ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&why, CTRUN_E_LEADER_LOST, "the rendezvous at %s is gone: %s: %s",
                  address, what,
                  rc == -EPROTO || rc == -EBADMSG ? "broken message" : strerror(-rc));
    link->was_silent = is_silence(rc);
    if (rc != -EPROTO && link_can_resume(link))
        begin_resume(link, &why);
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
        fail_attempt(link, -rc, "connect");
        return;
    }
    link_set_state(link, LINK_GREETING, "connected");
    link->greeted_ms = ct_now_ms();
    resume = make_resume(link);
    rc = handshake_begin(&link->handshake, &resume, link->options.hello, &link->out);
    if (rc < 0)
        fail_attempt(link, rc, "hello");
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

static void on_socket(void *context, unsigned events)
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

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}

bool link_get_ends(const struct link *link, struct ct_addr *local,
                   struct ct_addr *remote)
{
    *remote = link->options.servers[link->server];
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
