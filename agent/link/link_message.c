/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the server: the handshake, then all messages for the agent. */
#include <errno.h>
#include <sys/socket.h>

#include "agent/guard/fence.h"
#include "agent/link/link_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

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
    const int port = own_port(link);
    const struct ct_peer peer = {.port = (uint16_t)port};

    if (port > 0)
        link_send(link, &(struct ct_message){CT_MESSAGE_PEER, .peer = &peer});
}

/* The first CT_PEER tells whether the server sees our own end of this connection (no proxy
 * between); later ones only ask for an acknowledgement. */
static void on_peer(struct link *link, const struct ct_peer *message)
{
    if (link->is_direct || message->port != own_port(link))
        return;
    link->is_direct = true;
    fence_set_socket(loop_watch_fd(link->socket));
}

/* Whether workers of the world live that we resume with. */
static enum node_lease_workers get_workers(const struct link *link)
{
    if (!link->is_resuming)
        return NODE_LEASE_NO_WORKERS;
    switch (link->options.get_resume_state(link->options.context)) {
    case CT_RESUME_RUNNING: return NODE_LEASE_RUNNING;
    case CT_RESUME_STOPPING: return NODE_LEASE_ENDING;
    default: return NODE_LEASE_NO_WORKERS;
    }
}

/* Why this server is not accepted: another server has been elected since, or it serves another
 * instance of the run. NULL: it is accepted. */
static const char *check_welcome(struct link *link, const struct ct_welcome *message)
{
    const struct node_lease_terms terms = {.term = message->term,
                                           .lost_after_ms = message->lost_after_ms,
                                           .heartbeat_ms = message->heartbeat_ms};

    if (link->instance != 0 && message->instance != link->instance)
        return "it serves another instance of the run, not this one";
    if (!node_lease_welcome(&link->lease, &terms, link->greeted_ms, get_workers(link)))
        return "another server was elected after this one";
    return NULL;
}

static void welcome(struct link *link, const struct ct_welcome *message)
{
    const char *wrong = check_welcome(link, message);

    if (wrong) {
        link_turn_away(link, wrong);
        return;
    }
    link->had_proof |= link->handshake.is_proven;
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    (void)ct_copy(link->server_host, sizeof link->server_host,
                  message->host); /* same size */
    link->welcomed = message->instance;
    loop_timer_set(link->heartbeat, link->lease.heartbeat_ms);
    if (link->lease.lost_after_ms > 0)
        link_await_silence(link);
    link_set_state(link, LINK_UP, "welcome");
    link->is_new = !link->is_resuming;
    send_peer(link);
    if (link->state == LINK_UP)
        link_send_heartbeat(link); /* no START counts before it is acknowledged */
    link->is_new = false;
    if (link->state != LINK_UP || link->is_resuming)
        return; /* RESUMED comes next */
    link->options.on_up(link->options.context, message);
}

/* Another program listens on a port that was derived, not given: our server is on another port. */
static bool is_passed_over(const struct link *link, int code)
{
    return link->options.tries_ports && link->instance == 0 &&
           (code == CTRUN_E_WRONG_RUN || code == CTRUN_E_AUTH ||
            code == CTRUN_E_VERSION);
}

/* Who answers has not proven itself, and our server had: this is another program, on its port or between us. It cannot end
 * this node. */
static bool is_unproven(const struct link *link)
{
    return link->had_proof && !link->handshake.is_proven;
}

static const char unproven[] = "who answers there has not proven to be the rendezvous "
                               "that this node was connected to";

/* Another run's server has the port of ours, which is being restarted, perhaps: ours may still come back. */
static bool is_of_other_run(const struct link *link, int code)
{
    return link->welcomed != 0 && link->state == LINK_GREETING &&
           (code == CTRUN_E_WRONG_RUN || code == CTRUN_E_OTHER_JOB);
}

/* The cause is on this node: a reader would take the address of the server, put first, for that of the bad node. */
static bool is_about_us(int code)
{
    return code == CTRUN_E_EXCLUDED || code == CTRUN_E_FINGERPRINT;
}

static void refused(struct link *link, const struct ct_refuse *refuse)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    if (is_unproven(link)) {
        link_turn_away(link, unproven);
        return;
    }
    if (link->instance != 0 && !link->is_resuming &&
        refuse->code == CTRUN_E_LEADER_LOST) { /* our server may still come back */
        link_turn_away(link, refuse->text);
        return;
    }
    if (is_passed_over(link, refuse->code) || is_of_other_run(link, refuse->code)) {
        link_turn_away(link, refuse->text);
        return;
    }
    if (refuse->code == -EXFULL) { /* others may leave */
        link_fail_connection(link, refuse->code, refuse->text);
        return;
    }
    ct_addr_format(address, &link->servers[link->server]);
    link->is_refused = true;
    if (link->is_resuming)
        (void)ct_fail(&why, CTRUN_E_LEADER_LOST,
                      "the connection to the rendezvous at %s broke, and it does not "
                      "take this node back: %s",
                      address, refuse->text);
    else if (is_about_us(refuse->code))
        (void)ct_fail(&why, refuse->code, "%s; refused by the rendezvous at %s",
                      refuse->text, address);
    else
        (void)ct_fail(&why, refuse->code < 0 ? refuse->code : CTRUN_E_PROTOCOL,
                      "%s: %s", address, refuse->text);
    link_go_down(link, &why);
}

/* This server is not ours: asking it again is useless, unless ours has been there. */
static void distrust(struct link *link, const char *reason)
{
    struct ctrun_error why;
    char address[CT_ADDR_TEXT_MAX];

    if (is_passed_over(link, CTRUN_E_AUTH) || is_unproven(link)) {
        link_turn_away(link, reason);
        return;
    }
    ct_addr_format(address, &link->servers[link->server]);
    (void)ct_fail(&why, CTRUN_E_AUTH, "%s: %s", address, reason);
    link_go_down(link, &why);
}

static void on_proof(struct link *link, const struct ct_message *message)
{
    struct ctrun_error err;
    const int rc = handshake_on_message(&link->handshake, message, &link->out, &err);

    if (rc == CTRUN_E_AUTH)
        distrust(link, err.text);
    else if (rc < 0)
        link_fail_connection(link, rc, ct_message_name((int)message->kind));
    else
        (void)link_flush(link);
}

static void on_welcome(struct link *link, const struct ct_welcome *message)
{
    struct ctrun_error err;

    if (handshake_is_over(&link->handshake, &err) < 0)
        distrust(link, err.text);
    else
        welcome(link, message);
}

/* The sender is not the rendezvous server, but tells how to find it: for a new node, or for a
 * node of the run that was absent when all others got the plan. */
static void on_plan(struct link *link, const struct ct_message *message)
{
    struct ctrun_error err;

    if (handshake_is_over(&link->handshake, &err) < 0) {
        distrust(link, err.text);
        return;
    }
    link->options.on_message(link->options.context, message);
    link_turn_away(link, "another node is the rendezvous server");
}

static bool is_of_handshake(int kind)
{
    return kind == CT_MESSAGE_OFFER || kind == CT_MESSAGE_CHALLENGE ||
           kind == CT_MESSAGE_SERVER_PROOF;
}

static void pass_start(struct link *link, const struct ct_start *start)
{
    const struct ct_message message = {CT_MESSAGE_START, .start = start};

    link->has_held = false;
    link->instance = link->welcomed;
    link->last_generation = start->generation;
    link->options.on_message(link->options.context, &message);
}

/* A START that waited for us while we were paused, or that a server without its lease sends, may
 * be of a world that has ended: the workers start only after the server has acknowledged a
 * recent heartbeat. */
static void on_start(struct link *link, const struct ct_start *start)
{
    if (node_lease_is_fresh(&link->lease, ct_now_ms())) {
        pass_start(link, start);
        return;
    }
    link->held = *start;
    link->has_held = true;
    link_send_heartbeat(link);
}

static void on_stop(struct link *link, const struct ct_message *message)
{
    if (link->has_held) /* the round ended before its START counted */
        link_fail_connection(link, -ETIMEDOUT,
                             "this node was paused or cut off for too long");
    else
        link->options.on_message(link->options.context, message);
}

static void on_ack(struct link *link, const struct ct_heartbeat *ack)
{
    const uint64_t now_ms = ct_now_ms();

    if (!node_lease_ack(&link->lease, ack->sequence, now_ms)) {
        if (link->lease.is_replaceable && node_lease_is_over(&link->lease, now_ms))
            link_fail_connection(link, -ETIMEDOUT,
                                 "this node was paused or cut off for too long");
        return;
    }
    fence_renew(node_lease_deadline_ms(&link->lease));
    if (!link->has_held || !node_lease_is_fresh(&link->lease, now_ms))
        return;
    pass_start(link, &link->held);
}

/* A server that cannot resume would send WELCOME as to a new node. */
static void on_resumed(struct link *link, const struct ct_message *message)
{
    if (message->kind != CT_MESSAGE_RESUMED) {
        link_fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
        return;
    }
    link->is_resuming = false;
    if (!link->lease.is_replaceable)
        fence_renew(node_lease_deadline_ms(&link->lease));
    link->options.on_resumed(link->options.context, message->resumed);
}

void link_on_message(struct link *link, const struct ct_message *message)
{
    if (message->kind == CT_MESSAGE_REFUSE)
        refused(link, message->refuse);
    else if (link->state == LINK_GREETING && message->kind == CT_MESSAGE_WELCOME)
        on_welcome(link, message->welcome);
    else if (link->state == LINK_GREETING && message->kind == CT_MESSAGE_HA_PLAN)
        on_plan(link, message);
    else if (link->state == LINK_GREETING && is_of_handshake((int)message->kind))
        on_proof(link, message);
    else if (link->state == LINK_UP && link->is_resuming)
        on_resumed(link, message);
    else if (link->state == LINK_UP && message->kind == CT_MESSAGE_TICKET)
        link->ticket = *message->ticket;
    else if (link->state != LINK_UP || message->kind <= CT_MESSAGE_SERVER_PROOF ||
             is_of_handshake((int)message->kind))
        link_fail_connection(link, -EPROTO, ct_message_name((int)message->kind));
    else if (message->kind == CT_MESSAGE_START)
        on_start(link, message->start);
    else if (message->kind == CT_MESSAGE_STOP)
        on_stop(link, message);
    else if (message->kind == CT_MESSAGE_PEER)
        on_peer(link, message->peer);
    else if (message->kind == CT_MESSAGE_HEARTBEAT_ACK)
        on_ack(link, message->heartbeat);
    else
        link->options.on_message(link->options.context, message);
}
