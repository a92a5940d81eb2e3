/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/fence.h"
#include "agent/handshake.h"
#include "agent/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/tcp.h"

enum link_state {
    LINK_DOWN,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_UP
};

/* Heartbeats whose acknowledgement may still be on its way: all of a server's pause. */
enum {
    SENT_SLOTS = 64
};

static const char *const state_names[] = {"down", "connecting", "greeting", "up"};

/* Which state may follow which. */
static const unsigned edges[] = {
    [LINK_DOWN] = 1u << LINK_CONNECTING,
    [LINK_CONNECTING] = 1u << LINK_GREETING | 1u << LINK_DOWN,
    [LINK_GREETING] = 1u << LINK_UP | 1u << LINK_CONNECTING | 1u << LINK_DOWN,
    [LINK_UP] = 1u << LINK_DOWN | 1u << LINK_CONNECTING, /* to resume */
};

struct link {
    struct link_options options;
    enum link_state state;
    struct loop_watch *socket; /* of the attempt or connection; NULL between attempts */
    struct loop_timer *attempt; /* this attempt's end, or the pause before the next */
    struct loop_timer *talk;    /* next line for people */
    struct loop_timer *heartbeat;
    struct loop_timer *silence; /* runs when no acknowledgement came for long */
    struct ct_buf in;
    struct ct_buf out;
    const struct ct_addr *servers; /* the options', or `found` */
    size_t server_count;
    struct ct_addr found[CT_ADDRS_MAX];
    size_t server;     /* index of the address in use */
    uint64_t began_ms; /* of link_connect() */
    uint64_t deadline_ms;
    uint64_t pause_ms;
    struct ctrun_error why;     /* the last attempt's trouble */
    struct handshake handshake; /* and the seal of this connection */
    struct ct_ticket ticket;    /* key 0: none, a break is the end */
    bool is_resuming;           /* from the break until RESUMED */
    bool is_refused;            /* the ticket is worth nothing any more */
    uint64_t greeted_ms;        /* when HELLO went out */

    uint64_t heartbeat_ms;
    uint64_t lost_after_ms;
    uint64_t generation;
    int64_t step;
    uint64_t sequence;            /* of the last heartbeat sent */
    uint64_t sent_ms[SENT_SLOTS]; /* when, by sequence modulo SENT_SLOTS */
    uint64_t
        confirmed_ms;   /* when the last acknowledged heartbeat was sent, or later: what
                              * the silence timer counts from */
    uint64_t proven_ms; /* the same without benefit of doubt */
    uint64_t answered_ms; /* ... acknowledged by the server, not by its host for it */
    bool was_up, was_silent; /* the connection that is being given up */
    uint64_t tried_ms;       /* ... for how long it was tried to resume */
    bool is_direct;          /* nothing between the server's kernel and ours */
    bool has_held; /* a START that waits for an acknowledgement: see is_fresh() */
    struct ct_start held;
    uint64_t silence_due_ms; /* when the silence timer should run */
};

static void try_server(struct link *link);
static void on_attempt_timer(void *context);
static void on_heartbeat(void *context);
static void on_silence(void *context);
static void on_talk(void *context);
static void on_socket(void *context, unsigned events);
static bool is_silence(int rc);

static void set_state(struct link *link, enum link_state state, const char *why)
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
    link->heartbeat = loop_timer_open(options->loop, on_heartbeat, link);
    link->silence = loop_timer_open(options->loop, on_silence, link);
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

static void go_down(struct link *link, const struct ctrun_error *why)
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
    set_state(link, LINK_DOWN, copy.text);
    link->options.on_down(link->options.context, &copy);
}

void link_connect(struct link *link, uint64_t timeout_ms)
{
    link->began_ms = ct_now_ms();
    link->deadline_ms = ct_deadline_ms(timeout_ms);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    link->server = 0;
    memset(&link->why, 0, sizeof link->why);
    set_state(link, LINK_CONNECTING, "asked to");
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
        go_down(link, &link->why);
        return;
    }
    set_state(link, LINK_CONNECTING, link->why.text);
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
        go_down(link, &link->why);
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

/* How long we do without an acknowledgement; the fifth that is left is for the SIGKILL. */
static uint64_t patience_ms(const struct link *link)
{
    return link->lost_after_ms - link->lost_after_ms / 5;
}

static uint64_t lease_end_ms(const struct link *link)
{
    return link->confirmed_ms + patience_ms(link);
}

/* Without benefit of doubt: a server that was restarted knows nothing of pauses. */
static uint64_t resume_end_ms(const struct link *link)
{
    return link->proven_ms + patience_ms(link);
}

static bool can_resume(const struct link *link)
{
    return link->ticket.key != 0 && link->lost_after_ms > 0 &&
           ct_left_ms(resume_end_ms(link)) > 0 && link->options.get_resume_state &&
           link->options.get_resume_state(link->options.context) != 0;
}

/* At once, but not all nodes in the same instant. */
static void begin_resume(struct link *link, const struct ctrun_error *why)
{
    drop_socket(link);
    loop_timer_stop(link->heartbeat);
    link->is_resuming = true;
    link->why = *why;
    link->began_ms = ct_now_ms();
    link->deadline_ms = resume_end_ms(link);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    set_state(link, LINK_CONNECTING, why->text);
    loop_timer_set(link->attempt, spread(LINK_PAUSE_FIRST_MS));
    loop_timer_set(link->silence, (uint64_t)ct_left_ms(link->deadline_ms));
    if (link->options.on_break)
        link->options.on_break(link->options.context, why,
                               (uint64_t)ct_left_ms(link->deadline_ms));
}

/* No word from the server's host either: it may be there, and the way to it broken. */
static bool is_silence(int rc)
{
    return rc == -ETIMEDOUT || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* While UP a broken connection ends the link, or is made again; before it only the attempt. */
static void fail_connection(struct link *link, int rc, const char *what)
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
    if (rc != -EPROTO && can_resume(link))
        begin_resume(link, &why);
    else
        go_down(link, &why);
}

/* Writes what is queued. False when the connection has failed (and link is another). */
static bool flush(struct link *link)
{
    while (ct_buf_length(&link->out) > 0) {
        const ssize_t n = send(loop_watch_fd(link->socket), ct_buf_data(&link->out),
                               ct_buf_length(&link->out), MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fail_connection(link, -errno, "send");
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

/* In front of HELLO: which member this is. */
static int encode_resume(struct link *link)
{
    struct ct_message message = {.kind = CT_MESSAGE_RESUME};

    message.resume = (struct ct_resume){
        .id = link->ticket.id,
        .key = link->ticket.key,
        .generation = link->generation,
        .state = link->options.get_resume_state(link->options.context),
    };
    return ct_message_encode(&link->out, &message);
}

static void greet(struct link *link)
{
    socklen_t length = sizeof(int);
    int rc = 0;

    if (getsockopt(loop_watch_fd(link->socket), SOL_SOCKET, SO_ERROR, &rc, &length) < 0)
        rc = errno;
    if (rc != 0) {
        fail_attempt(link, -rc, "connect");
        return;
    }
    set_state(link, LINK_GREETING, "connected");
    link->greeted_ms = ct_now_ms();
    rc = link->is_resuming ? encode_resume(link) : 0;
    if (rc == 0)
        rc = handshake_begin(&link->handshake, link->options.hello, &link->out);
    if (rc < 0)
        fail_attempt(link, rc, "hello");
    else
        (void)flush(link);
}

static void await_silence(struct link *link)
{
    link->silence_due_ms = lease_end_ms(link);
    loop_timer_set(link->silence, (uint64_t)ct_left_ms(link->silence_due_ms));
}

uint64_t link_lease_ms(const struct link *link)
{
    return link->proven_ms + link->lost_after_ms - link->lost_after_ms / 20;
}

/* ---- The server's host ------------------------------------------------------------------- */

static int own_port(const struct link *link)
{
    struct ct_addr addr = {.length = sizeof(struct sockaddr_in6)};

    if (!link->socket ||
        getsockname(loop_watch_fd(link->socket), &addr.any, &addr.length) < 0)
        return -1;
    return ct_addr_port(&addr);
}

static void send_peer(struct link *link)
{
    struct ct_message message = {.kind = CT_MESSAGE_PEER};
    const int port = own_port(link);

    if (port <= 0)
        return;
    message.peer.port = (uint16_t)port;
    link_send(link, &message);
}

/* The first one tells whether the server sees the end of this connection that is ours; later
 * ones only want to be acknowledged. */
static void take_peer(struct link *link, const struct ct_peer *message)
{
    if (link->is_direct || message->port != own_port(link))
        return;
    link->is_direct = true;
    fence_set_socket(loop_watch_fd(link->socket));
}

/* The server's host has every heartbeat: it will read them before it counts us as lost. */
static bool is_server_paused(const struct link *link, uint64_t now_ms)
{
    const uint64_t patience = link->lost_after_ms * CT_PAUSE_LEASES / 5 * 4;
    struct ct_tcp_view view;

    /* Where a silent host is replaced, nobody waits for it: patience would be a second world. */
    return !link->options.find_servers && link->is_direct &&
           now_ms - link->answered_ms < patience && ct_buf_length(&link->out) == 0 &&
           ct_tcp_look(loop_watch_fd(link->socket), &view) == 0 && view.is_open &&
           view.is_acknowledged;
}

static void welcome(struct link *link, const struct ct_welcome *message)
{
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    link->heartbeat_ms = message->heartbeat_ms ? message->heartbeat_ms : 1000;
    link->lost_after_ms = message->lost_after_ms;
    link->confirmed_ms = link->proven_ms = link->answered_ms = link->greeted_ms;
    loop_timer_set(link->heartbeat, link->heartbeat_ms);
    if (link->lost_after_ms > 0)
        await_silence(link);
    set_state(link, LINK_UP, "welcome");
    send_peer(link);
    if (link->is_resuming)
        return; /* RESUMED is next */
    link->options.on_up(link->options.context, message);
}

static void refused(struct link *link, const struct ct_refuse *refuse)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    ct_addr_format(address, &link->servers[link->server]);
    link->is_refused = true;
    if (link->is_resuming)
        (void)ct_fail(&why, CTRUN_E_LEADER_LOST,
                      "the connection to the rendezvous at %s broke, and it does not "
                      "take this node back: %s",
                      address, refuse->text);
    else
        (void)ct_fail(&why, refuse->code < 0 ? refuse->code : CTRUN_E_PROTOCOL,
                      "%s: %s", address, refuse->text);
    go_down(link, &why);
}

/* It is no use to ask again: this server is not ours. */
static void distrust(struct link *link, const char *reason)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&why, CTRUN_E_AUTH, "%s: %s", address, reason);
    go_down(link, &why);
}

static void take_proof(struct link *link, const struct ct_message *message)
{
    struct ctrun_error err;
    const int rc = handshake_take(&link->handshake, message, &link->out, &err);

    if (rc == CTRUN_E_AUTH)
        distrust(link, err.text);
    else if (rc < 0)
        fail_connection(link, rc, ct_message_name((int)message->kind));
    else
        (void)flush(link);
}

static void take_welcome(struct link *link, const struct ct_welcome *message)
{
    struct ctrun_error err;

    if (handshake_is_over(&link->handshake, &err) < 0)
        distrust(link, err.text);
    else
        welcome(link, message);
}

static bool is_of_handshake(int kind)
{
    return kind == CT_MESSAGE_OFFER || kind == CT_MESSAGE_CHALLENGE ||
           kind == CT_MESSAGE_SERVER_PROOF;
}

static void send_heartbeat(struct link *link)
{
    struct ct_message message = {.kind = CT_MESSAGE_HEARTBEAT};

    link->sequence++;
    link->sent_ms[link->sequence % SENT_SLOTS] = ct_now_ms();
    message.heartbeat.generation = link->generation;
    message.heartbeat.sequence = link->sequence;
    message.heartbeat.step = link->step;
    link_send(link, &message);
}

/* A message that waited for us while we were paused may be of a world that is no more. */
static bool is_fresh(const struct link *link)
{
    return link->lost_after_ms == 0 ||
           ct_now_ms() < link->answered_ms + patience_ms(link);
}

static void pass_start(struct link *link, const struct ct_start *start)
{
    struct ct_message message = {.kind = CT_MESSAGE_START};

    message.start = *start;
    link->has_held = false;
    link->options.on_message(link->options.context, &message);
}

/* Nothing is started before the server has answered a heartbeat of late. */
static void take_start(struct link *link, const struct ct_start *start)
{
    if (is_fresh(link)) {
        pass_start(link, start);
        return;
    }
    link->held = *start;
    link->has_held = true;
    send_heartbeat(link);
}

static void take_stop(struct link *link, const struct ct_message *message)
{
    if (link->has_held) /* it is over before we were sure of its beginning */
        fail_connection(link, -ETIMEDOUT, "this node was paused");
    else
        link->options.on_message(link->options.context, message);
}

static void take_ack(struct link *link, const struct ct_heartbeat *ack)
{
    struct ct_start held;

    const size_t slots = SENT_SLOTS;

    if (ack->sequence > link->sequence || link->sequence - ack->sequence >= slots)
        return; /* not one of ours, or too old to tell when it was sent */
    if (link->sent_ms[ack->sequence % slots] > link->answered_ms)
        link->answered_ms = link->sent_ms[ack->sequence % slots];
    if (link->answered_ms > link->proven_ms)
        link->proven_ms = link->answered_ms;
    if (link->proven_ms > link->confirmed_ms)
        link->confirmed_ms = link->proven_ms;
    fence_renew(link_lease_ms(link));
    if (!link->has_held || !is_fresh(link))
        return;
    held = link->held;
    pass_start(link, &held);
}

/* A server that does not know how would go on with WELCOME as if we were new. */
static void take_resumed(struct link *link, const struct ct_message *message)
{
    if (message->kind != CT_MESSAGE_RESUMED) {
        fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
        return;
    }
    link->is_resuming = false;
    fence_renew(link_lease_ms(link));
    link->options.on_resumed(link->options.context, &message->resumed);
}

static void take_message(struct link *link, const struct ct_message *message)
{
    if (message->kind == CT_MESSAGE_REFUSE)
        refused(link, &message->refuse);
    else if (link->state == LINK_GREETING && message->kind == CT_MESSAGE_WELCOME)
        take_welcome(link, &message->welcome);
    else if (link->state == LINK_GREETING && is_of_handshake((int)message->kind))
        take_proof(link, message);
    else if (link->state == LINK_UP && link->is_resuming)
        take_resumed(link, message);
    else if (link->state == LINK_UP && message->kind == CT_MESSAGE_TICKET)
        link->ticket = message->ticket;
    else if (link->state != LINK_UP || message->kind <= CT_MESSAGE_SERVER_PROOF ||
             is_of_handshake((int)message->kind))
        fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
    else if (message->kind == CT_MESSAGE_START)
        take_start(link, &message->start);
    else if (message->kind == CT_MESSAGE_STOP)
        take_stop(link, message);
    else if (message->kind == CT_MESSAGE_PEER)
        take_peer(link, &message->peer);
    else if (message->kind == CT_MESSAGE_HEARTBEAT_ACK)
        take_ack(link, &message->heartbeat);
    else
        link->options.on_message(link->options.context, message);
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
        fail_connection(link, rc, "receive");
        return false;
    }
    ct_buf_consume(&link->in,
                   (size_t)taken); /* before the callback, which may drop it all */
    if (rc != -ENOSYS)             /* else a newer server's: skip it */
        take_message(link, &message);
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
        fail_connection(link, n < 0 ? -errno : -ECONNRESET,
                        n < 0 ? "receive" : "closed");
        return;
    }
    rc = ct_buf_append(&link->in, bytes, (size_t)n);
    if (rc < 0) {
        fail_connection(link, rc, "receive");
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
    if ((events & LOOP_WRITE) && !flush(link))
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
        fail_connection(link, rc, ct_message_name((int)message->kind));
    else
        (void)flush(link);
}

static void on_silence(void *context)
{
    struct link *link = context;
    const uint64_t now_ms = ct_now_ms();

    if (link->state != LINK_UP) { /* still trying to resume */
        go_down(link, &link->why);
        return;
    }
    /* We were stopped (SIGSTOP, a paused VM), not the server: it has one beat to answer. */
    if (now_ms > link->silence_due_ms + link->heartbeat_ms)
        link->confirmed_ms = now_ms + link->heartbeat_ms - patience_ms(link);
    if (now_ms >= lease_end_ms(link) && is_server_paused(link, now_ms)) {
        link->proven_ms = link->sent_ms[link->sequence % SENT_SLOTS];
        link->confirmed_ms = link->proven_ms;
        ct_info("the rendezvous is silent, but its host answers: paused");
        fence_renew(link_lease_ms(link));
    }
    if (now_ms < lease_end_ms(link))
        await_silence(link);
    else
        fail_connection(link, -ETIMEDOUT, "no answer to heartbeats");
}

static void on_heartbeat(void *context)
{
    struct link *link = context;

    loop_timer_set(link->heartbeat, link->heartbeat_ms);
    send_heartbeat(link);
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
