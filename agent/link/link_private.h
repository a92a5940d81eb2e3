/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the link; no other file includes it.
 *
 * Each file uses only those below it:
 *
 *     link.c           open, close, settings, queries
 *     link_connect.c   attempts to reach the server
 *     link_socket.c    the connection and its bytes
 *     link_message.c   messages from the server
 *     link_lease.c     heartbeats, and a server that is silent
 *     link_chaos.c     a connection that is cut or slow by ctrunctl chaos
 *     link_break.c     the end of a connection or an attempt, and what is tried next
 *     link_delay.c     delayed bytes */
#pragma once

#include "agent/link/handshake.h"
#include "agent/link/link.h"
#include "agent/link/node_lease.h"
#include "worker_sdk/base/buf.h"

#define LINK_CUT "cut by ctrunctl chaos"

enum link_state {
    LINK_DOWN,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_UP
};

struct link {
    struct link_options options;
    enum link_state state;
    struct loop_watch *socket; /* of the attempt or connection; NULL between attempts */
    /* end of this attempt, or of the pause before the next one */
    struct loop_timer *attempt;
    struct loop_timer *talk; /* next line for people */
    struct loop_timer *heartbeat;
    struct loop_timer *silence; /* fires when no acknowledgement came for long */
    struct ct_buf in;
    struct ct_buf out;
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES]; /* of the frame that is being read */
    union ct_message_room room;
    const struct ct_addr *servers; /* the options', or `found` */
    size_t server_count;
    struct ct_addr found[CT_ADDRS_MAX];
    size_t server; /* index of the address in use */
    size_t blamed; /* index of the address whose error is `why` */
    /* the machine name that the server gave; empty: not known */
    char server_host[CT_HOST_MAX];
    uint64_t began_ms; /* of link_connect() */
    uint64_t deadline_ms;
    uint64_t pause_ms;
    struct ctrun_error why;     /* the error of the last attempt */
    struct handshake handshake; /* with the encryption keys of this connection */
    struct ct_ticket ticket;    /* key 0: none, so a break ends the link */
    bool is_resuming;           /* from the break until RESUMED */
    uint64_t resume_attempts;   /* connections on which RESUME was sent */
    bool is_refused;            /* the ticket is not valid any more */
    uint64_t greeted_ms;        /* when HELLO went out */
    bool had_proof;             /* a server has proven itself on a connection before */

    uint64_t generation;
    int64_t step;
    uint64_t moved_ms; /* when a worker last made progress; 0: not measured */
    struct node_lease lease;
    uint64_t instance;        /* of the run whose START this node has had; 0: none */
    uint64_t last_generation; /* ... of that START */
    bool is_new;              /* connected, and the agent does not know it yet */
    uint64_t welcomed;        /* the instance that the server serves */
    bool was_up, was_silent;  /* state of the connection that has just ended */
    uint64_t tried_ms;        /* ... how long it was tried to resume; 0: not tried */
    bool is_direct;           /* no proxy between the server's kernel and ours */
    bool is_cut;              /* chaos: no connection is made */
    /* chaos: queued bytes are delayed by this; 0: not delayed */
    uint64_t slow_ms;
    struct loop_timer *slow; /* until the first `young` bytes of `out` may be sent */
    size_t young, ripe;      /* first bytes of `out`: wait for the timer; may be sent */
    bool has_held; /* a START that waits for an acknowledgement: see is_fresh() */
    struct ct_start held;
};

/* ---- link_break.c ------------------------------------------------------------------------ */

void link_set_state(struct link *link, enum link_state state, const char *why);
/* The end of this connection, and of the attempts to make it again. The callback may connect. */
void link_go_down(struct link *link, const struct ctrun_error *why);
/* Ends a broken connection: while UP the link resumes or goes DOWN; before that only the attempt
 * fails. `what`: a call or a message, to which the text of `rc` is added; or a sentence. */
void link_fail_connection(struct link *link, int rc, const char *what);
/* The attempt failed: next address at once, and after the last one a pause. */
void link_fail_attempt(struct link *link, int rc, const char *what);
/* The same for connect(). */
void link_fail_connect(struct link *link, int rc);
/* The same for a server that is not the one that we look for. */
void link_turn_away(struct link *link, const char *why);
/* Writes queued bytes. False when the connection has failed (the state of the link has changed). */
bool link_flush(struct link *link);

/* ---- link_delay.c ------------------------------------------------------------------------ */

/* Queued bytes that may leave now; notes bytes that have left; sets the timer for the rest. */
size_t link_sendable(const struct link *link);
void link_sent(struct link *link, size_t count);
void link_hold_back(struct link *link);
/* The queue is empty now. */
void link_forget_held(struct link *link);

/* ---- link_chaos.c ------------------------------------------------------------------------ */

/* Timer; context: struct link. */
void link_on_ripe(void *context);

/* ---- link_lease.c ------------------------------------------------------------------------ */

void link_await_silence(struct link *link);
void link_send_heartbeat(struct link *link);
/* Timers; context: struct link. */
void link_on_silence(void *context);
void link_on_heartbeat(void *context);

/* ---- link_message.c ---------------------------------------------------------------------- */

void link_on_message(struct link *link, const struct ct_message *message);

/* ---- link_socket.c ----------------------------------------------------------------------- */

/* Reads bytes, or writes when there is room; context: struct link. */
void link_on_socket(void *context, unsigned events);

/* ---- link_connect.c ---------------------------------------------------------------------- */

/* Timers; context: struct link. */
void link_on_attempt(void *context);
void link_on_talk(void *context);
