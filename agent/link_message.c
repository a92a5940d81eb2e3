/* SPDX-License-Identifier: Apache-2.0 */
/* What the server says: the handshake, then everything that the agent hears of. */
#include <errno.h>
#include <sys/socket.h>

#include "agent/fence.h"
#include "agent/link_private.h"
#include "worker_sdk/base/clock.h"

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
    struct ct_message message;
    const int port = own_port(link);

    ct_message_init(&message, CT_MESSAGE_PEER);
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

static void welcome(struct link *link, const struct ct_welcome *message)
{
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    link->heartbeat_ms = message->heartbeat_ms ? message->heartbeat_ms : 1000;
    link->lost_after_ms = message->lost_after_ms;
    link->confirmed_ms = link->proven_ms = link->answered_ms = link->greeted_ms;
    loop_timer_set(link->heartbeat, link->heartbeat_ms);
    if (link->lost_after_ms > 0)
        link_await_silence(link);
    link->is_following = false;
    link_set_state(link, LINK_UP, "welcome");
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
    link_go_down(link, &why);
}

/* It is no use to ask again: this server is not ours. */
static void distrust(struct link *link, const char *reason)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&why, CTRUN_E_AUTH, "%s: %s", address, reason);
    link_go_down(link, &why);
}

static void take_proof(struct link *link, const struct ct_message *message)
{
    struct ctrun_error err;
    const int rc = handshake_take(&link->handshake, message, &link->out, &err);

    if (rc == CTRUN_E_AUTH)
        distrust(link, err.text);
    else if (rc < 0)
        link_fail_connection(link, rc, ct_message_name((int)message->kind));
    else
        (void)link_flush(link);
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

/* A message that waited for us while we were paused may be of a world that is no more. */
static bool is_fresh(const struct link *link)
{
    return link->lost_after_ms == 0 ||
           ct_now_ms() < link->answered_ms + link_patience_ms(link);
}

static void pass_start(struct link *link, const struct ct_start *start)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_START);
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
    link_send_heartbeat(link);
}

static void take_stop(struct link *link, const struct ct_message *message)
{
    if (link->has_held) /* it is over before we were sure of its beginning */
        link_fail_connection(link, -ETIMEDOUT, "this node was paused");
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

static void take_echo(struct link *link, const struct ct_echo *echo)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_ECHO);
    link->echoed_ms = ct_now_ms();
    link->echoed_by = echo->server;
    message.echo = *echo;
    message.echo.generation = link->generation;
    link_send(link, &message);
    message.echo = *echo;
    if (link->state == LINK_UP)
        link->options.on_message(link->options.context, &message);
}

/* A server that does not know how would go on with WELCOME as if we were new. */
static void take_resumed(struct link *link, const struct ct_message *message)
{
    if (message->kind != CT_MESSAGE_RESUMED) {
        link_fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
        return;
    }
    link->is_resuming = false;
    fence_renew(link_lease_ms(link));
    link->options.on_resumed(link->options.context, &message->resumed);
}

void link_take_message(struct link *link, const struct ct_message *message)
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
        link_fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
    else if (message->kind == CT_MESSAGE_START)
        take_start(link, &message->start);
    else if (message->kind == CT_MESSAGE_STOP)
        take_stop(link, message);
    else if (message->kind == CT_MESSAGE_PEER)
        take_peer(link, &message->peer);
    else if (message->kind == CT_MESSAGE_ECHO)
        take_echo(link, &message->echo);
    else if (message->kind == CT_MESSAGE_HEARTBEAT_ACK)
        take_ack(link, &message->heartbeat);
    else
        link->options.on_message(link->options.context, message);
}
