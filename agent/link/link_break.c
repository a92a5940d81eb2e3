/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the link, and the end of a connection or an attempt: what is tried next, and for
 * how long. Sending is here, too, because a send may be the first to notice the end. */
#include <assert.h>
#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "agent/guard/fence.h"
#include "agent/link/link_private.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/connect_error.h"

enum {
    REASON_MAX_BYTES = CTRUN_ERROR_TEXT_MAX
};

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
    if (link->state == state)
        return;
    if (!(edges[link->state] & 1u << state))
        ct_err("link: mistake in ctrun: state change not allowed from=%s to=%s",
               state_names[link->state], state_names[state]);
    assert(edges[link->state] & 1u << state);
    ct_debug("link: %s -> %s (%s)", state_names[link->state], state_names[state], why);
    ct_event_emit("link_state", CT_STR("from", state_names[link->state]),
                  CT_STR("to", state_names[state]), CT_STR("why", why));
    link->state = state;
}

/* The fence first: once the descriptor is closed, its number may belong to another file. Unsent
 * and unread bytes are dropped; the agent sends what still matters again after RESUMED. */
static void drop_socket(struct link *link)
{
    fence_set_socket(-1);
    link->is_direct = false;
    link->has_held = false;
    loop_watch_close(link->socket);
    link->socket = NULL;
    ct_buf_consume(&link->in, ct_buf_length(&link->in));
    ct_buf_consume(&link->out, ct_buf_length(&link->out));
    link_forget_held(link);
}

/* All timers are stopped and the state is DOWN before the callback, which may
 * connect again at once. */
void link_go_down(struct link *link, const struct ctrun_error *why)
{
    const struct ctrun_error copy =
        *why; /* copied: may be link->why, and the callback may connect */

    drop_socket(link);
    loop_timer_stop(link->attempt);
    loop_timer_stop(link->talk);
    loop_timer_stop(link->heartbeat);
    loop_timer_stop(link->silence);
    link->was_up = (link->state == LINK_UP && !link->is_new) || link->is_resuming;
    link->tried_ms = link->is_resuming ? ct_now_ms() - link->began_ms : 0;
    if (link->is_refused || !link->options.find_servers)
        link->ticket.key = 0;
    link->is_resuming = false;
    link->is_refused = false;
    link_set_state(link, LINK_DOWN, copy.text);
    link->options.on_down(link->options.context, &copy);
}

/* The server's host was silent, too: the server may be alive and the network to it broken. */
static bool is_silence(int rc)
{
    return rc == -ETIMEDOUT || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* A random time between half of time_ms and time_ms. */
static uint64_t spread(uint64_t time_ms)
{
    uint16_t random = 0;

    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* on failure 0 is used */
    return time_ms / 2 + random % (time_ms / 2 + 1);
}

/* "connect: Connection refused". A sentence says all: it has blanks, or another server wrote it. */
static void add_reason(char *dst, size_t size, const char *what, int rc,
                       const char *broken)
{
    if (rc == -ESTALE || strchr(what, ' '))
        (void)ct_copy(dst, size, what);
    else
        (void)ct_format(dst, size, "%s: %s", what,
                        rc == -EPROTO || rc == -EBADMSG ? broken : strerror(-rc));
}

static int code_of(int rc)
{
    switch (rc) {
    case -ECONNREFUSED: return CTRUN_E_NO_HOST;
    case -EXFULL: return rc;
    default: return CTRUN_E_UNREACHABLE;
    }
}

/* True if the server has said that it is full, and no later attempt says more: it may also close a
 * connection without an answer, and where its name has several addresses it may not listen at all. */
static bool is_still_full(const struct link *link, int rc)
{
    return link->why.code == -EXFULL &&
           (link->server == link->blamed ? rc == -ECONNRESET || rc == -EPIPE
                                         : rc != -EXFULL);
}

/* The addresses are tried in turn; after the last one comes a pause, twice as long each time.
 * While resuming the pause is short and random instead: all nodes have lost the same server. */
void link_fail_attempt(struct link *link, int rc, const char *what)
{
    char address[CT_ADDR_TEXT_MAX];
    char reason[REASON_MAX_BYTES];
    uint64_t pause_ms = 0;

    if (is_still_full(link, rc)) {
        ct_debug("link: attempt failed: %s", what);
    } else if (link->server_count > 0) {
        ct_addr_format(address, &link->servers[link->server]);
        add_reason(reason, sizeof reason, what, rc,
                   "the program that listens there does not use the protocol of ctrun");
        (void)ct_fail(&link->why, code_of(rc), "%s: %s", address, reason);
        link->blamed = link->server;
    } else {
        (void)ct_fail(&link->why, CTRUN_E_UNREACHABLE,
                      "no rendezvous server is known yet: none has been elected");
    }
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
    if (link->is_resuming) { /* random, since all nodes of a run have lost the same server */
        link->was_silent = is_silence(rc);
        pause_ms = spread(pause_ms < LINK_RESUME_PAUSE_MS ? pause_ms
                                                          : LINK_RESUME_PAUSE_MS);
    }
    if (pause_ms > (uint64_t)ct_left_ms(link->deadline_ms))
        pause_ms = (uint64_t)ct_left_ms(link->deadline_ms);
    loop_timer_set(link->attempt, pause_ms);
}

/* A refusal is explained where it is known who should listen there. */
void link_fail_connect(struct link *link, int rc)
{
    const char *meaning = rc == -ECONNREFUSED ? NULL : ct_connect_error_explain(rc);
    char what[REASON_MAX_BYTES];

    (void)ct_format(what, sizeof what, "connect: %s%s%s", strerror(-rc),
                    meaning ? ": " : "", meaning ? meaning : "");
    link_fail_attempt(link, rc, what);
}

void link_turn_away(struct link *link, const char *why)
{
    link_fail_attempt(link, -ESTALE, why);
}

static bool can_resume(const struct link *link)
{
    return link->ticket.key != 0 && link->lease.lost_after_ms > 0 &&
           ct_left_ms(node_lease_resume_end_ms(&link->lease)) > 0 &&
           link->options.get_resume_state &&
           link->options.get_resume_state(link->options.context) != 0;
}

/* From here on the silence timer ends the attempts: when the lease is over the membership cannot
 * be resumed. */
static void begin_resume(struct link *link, const struct ctrun_error *why)
{
    drop_socket(link);
    loop_timer_stop(link->heartbeat);
    link->is_resuming = true;
    link->why = *why;
    link->began_ms = ct_now_ms();
    link->deadline_ms = node_lease_resume_end_ms(&link->lease);
    link->pause_ms = LINK_PAUSE_FIRST_MS;
    link_set_state(link, LINK_CONNECTING, why->text);
    loop_timer_set(link->attempt, spread(LINK_PAUSE_FIRST_MS));
    loop_timer_set(link->silence, (uint64_t)ct_left_ms(link->deadline_ms));
    if (link->options.on_break)
        link->options.on_break(link->options.context, why,
                               (uint64_t)ct_left_ms(link->deadline_ms));
}

/* After a message that the server may not send now (-EPROTO) the link does not resume: the
 * server would send it again. */
void link_fail_connection(struct link *link, int rc, const char *what)
{
    struct ctrun_error why;
    const char *host = link->server_host;
    char address[CT_ADDR_TEXT_MAX];
    char reason[REASON_MAX_BYTES];

    if (link->state != LINK_UP || link->is_new) {
        if (link->is_new) {
            loop_timer_stop(link->heartbeat);
            loop_timer_stop(link->silence);
        }
        link_fail_attempt(link, rc, what);
        return;
    }
    ct_addr_format(address, &link->servers[link->server]);
    add_reason(reason, sizeof reason, what, rc, "malformed or unexpected message");
    (void)ct_fail(&why, CTRUN_E_LEADER_LOST, "the rendezvous on %s%s%s%s is gone: %s",
                  host, *host ? " (" : "", address, *host ? ")" : "", reason);
    link->was_silent = is_silence(rc);
    if (rc != -EPROTO && can_resume(link))
        begin_resume(link, &why);
    else
        link_go_down(link, &why);
}

bool link_flush(struct link *link)
{
    size_t length;

    while ((length = link_sendable(link)) > 0) {
        const ssize_t n = send(loop_watch_fd(link->socket), ct_buf_data(&link->out),
                               length, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            link_fail_connection(link, -errno, "send");
            return false;
        }
        if (n < 0)
            break;
        ct_buf_consume(&link->out, (size_t)n);
        link_sent(link, (size_t)n);
    }
    loop_watch_for(link->socket, LOOP_READ | (length > 0 ? LOOP_WRITE : 0u));
    link_hold_back(link);
    return true;
}

/* A message that cannot be sent now is not kept: its sender repeats it when the link is UP
 * again, if it still holds. */
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
