/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the link share; nobody else includes it.
 *
 *     link_connect.c   attempts to reach the server
 *     link.c           the connection and its bytes
 *     link_message.c   what the server says
 *     link_lease.c     heartbeats, silence, the lease */
#ifndef AGENT_LINK_PRIVATE_H
#define AGENT_LINK_PRIVATE_H

#include "agent/handshake.h"
#include "agent/link.h"
#include "worker_sdk/base/buf.h"

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
    bool was_up, was_silent, was_refused; /* the connection that is being given up */
    uint64_t tried_ms;                    /* ... for how long it was tried to resume */
    bool is_direct; /* nothing between the server's kernel and ours */
    bool has_held;  /* a START that waits for an acknowledgement: see is_fresh() */
    struct ct_start held;
    bool is_serving;         /* see link_set_serving() */
    bool is_following;       /* servers that may not be there: the next one soon */
    uint64_t echoed_ms;      /* when the last ECHO came */
    uint64_t echoed_by;      /* which server's; 0: none ever came */
    uint64_t silence_due_ms; /* when the silence timer should run */
};

/* ---- link_connect.c ---------------------------------------------------------------------- */

/* The attempt failed: next address at once, and after the last one a pause. */
void link_fail_attempt(struct link *link, int rc, const char *what);
/* No word from the server's host either: it may be there, and the way to it broken. */
bool link_is_silence(int rc);
/* The connection is made again: at once, but not by all nodes in the same instant. */
void link_begin_resume(struct link *link, const struct ctrun_error *why);
/* Timers; context: struct link. */
void link_on_attempt(void *context);
void link_on_talk(void *context);

/* ---- link.c ------------------------------------------------------------------------------ */

void link_set_state(struct link *link, enum link_state state, const char *why);
/* The end of this connection, and of the attempts to make it again. The callback may connect. */
void link_go_down(struct link *link, const struct ctrun_error *why);
/* Of the attempt or connection, with what it had received and not sent. */
void link_drop_socket(struct link *link);
/* Bytes, or room for them; context: struct link. */
void link_on_socket(void *context, unsigned events);
/* While UP a broken connection ends the link, or is made again; before it only the attempt. */
void link_fail_connection(struct link *link, int rc, const char *what);
/* Writes what is queued. False when the connection has failed (and link is another). */
bool link_flush(struct link *link);

/* ---- link_message.c ---------------------------------------------------------------------- */

void link_take_message(struct link *link, const struct ct_message *message);

/* ---- link_lease.c ------------------------------------------------------------------------ */

/* How long we do without an acknowledgement; the fifth that is left is for the SIGKILL. */
uint64_t link_patience_ms(const struct link *link);
/* Without benefit of doubt: a server that was restarted knows nothing of pauses. */
uint64_t link_resume_end_ms(const struct link *link);
bool link_can_resume(const struct link *link);
void link_await_silence(struct link *link);
void link_send_heartbeat(struct link *link);
/* Timers; context: struct link. */
void link_on_silence(void *context);
void link_on_heartbeat(void *context);

#endif
