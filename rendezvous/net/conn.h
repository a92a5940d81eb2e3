/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: bytes in, bytes out, deadlines and back-pressure. Their users know the protocols.
 *
 *     conn_accept ──> OPEN ──conn_finish──> FINISHING ──output sent──> SHUT ──peer closed──┐
 *                      └───────── error, end of stream, conn_close ───────────> CLOSING <──┘
 *
 * A user appends to conn->out and calls conn_flush(). FINISHING sends the rest of the output, shuts
 * our side down and waits until the peer closes too, so that a reset cannot overtake our last
 * message. on_close is called once, from the event loop and never from inside conn_close(): the
 * user may close connections while it walks over its own structures. The memory is freed after
 * that. */
#pragma once

#include <uv.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/net/rejects.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/lease.h"
#include "worker_sdk/base/seldom.h"

struct conn;

struct conn_user {
    const char *kind; /* the protocol, for metrics; may be NULL */
    /* `data` is borrowed; the user must consume all of it. */
    void (*on_bytes)(struct conn *conn, const uint8_t *data, size_t length);
    /* The kernel took some output; may be NULL. */
    void (*on_sent)(struct conn *conn);
    /* The connection is gone; may be NULL. `reason` is borrowed. */
    void (*on_close)(struct conn *conn, const char *reason);
};

enum conn_state {
    CONN_OPEN,
    CONN_FINISHING,
    CONN_SHUT,
    CONN_CLOSING,
};

/* What the other end has proven; each rank has its own limit, so that one cannot use up the
 * connections of the others. */
enum conn_rank {
    CONN_UNPROVEN, /* nothing yet */
    CONN_CLIENT,   /* a store client that may use the store */
    CONN_MEMBER,   /* an agent of a run */
    CONN_RANKS
};

struct conn_pool;
struct listener;

struct conn {
    uv_tcp_t tcp;
    struct conn_pool *pool;
    struct ct_list node;
    struct ct_list unproven_node;
    enum conn_rank rank;
    enum conn_state state;
    const struct conn_user *user;
    void *context;         /* the user's */
    struct ct_buf *out;    /* &own_out, or a buffer of the user's that outlives OPEN */
    struct ct_buf own_out; /* at most CONN_OUT_MAX_BYTES */
    struct ct_buf writing; /* bytes that libuv still has to write */
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_writing;
    bool has_more; /* it filled the buffer in this turn */
    bool is_reading;
    struct ct_lease deadline;
    struct ct_addr remote;
    struct ct_addr local;
    char reason[128];
};

/* All connections of one loop. */
struct conn_pool {
    uv_loop_t *loop;
    struct ct_list conns;
    struct ct_list unproven; /* the oldest first */
    size_t count;            /* connections with a descriptor */
    size_t count_max;        /* from conn_pool_init(), limited by descriptors */
    size_t reserve;          /* of these, kept for unproven ones */
    size_t counts[CONN_RANKS], maxima[CONN_RANKS]; /* `count` and limits by rank */
    struct rejects rejects;
    struct ct_seldom without_memory; /* lines about connections that were refused so */
    struct ct_seldom full;           /* ... for lack of room */
    uint64_t bytes_in, bytes_out;    /* of all connections since start */
    struct ct_lease_queue
        deadlines; /* connections with a deadline of CONN_IDENTIFY_MS */
    uv_timer_t timer;
    uint8_t read_buffer[64 * 1024]; /* shared: on_bytes consumes all bytes */
};

/* At most `max` connections, 0: SERVER_CONNS_MAX; fewer if there are fewer descriptors. */
int conn_pool_init(struct conn_pool *pool, uv_loop_t *loop, size_t max);
/* Closes all connections and the timer; the loop must run until they are gone. */
void conn_pool_close(struct conn_pool *pool);

/* Accepts the connection that waits at `listener` and starts to read; its rank is unproven. If
 * there are too many connections of this rank or in all, the oldest unproven one is closed. NULL:
 * the new connection was closed, for that reason or for lack of memory, or there is none yet. */
struct conn *conn_accept(struct conn_pool *pool, struct listener *listener,
                         const struct conn_user *user, void *context);
/* Gives the connection a rank: it is not closed any more to make room. False: it is closing, or
 * there are too many, which is counted and logged; then the caller closes it, with an answer if its
 * protocol has one. */
bool conn_prove(struct conn *conn, enum conn_rank rank);
/* The connection is closed after CONN_IDENTIFY_MS unless the deadline is cleared before. */
void conn_set_deadline(struct conn *conn);
void conn_clear_deadline(struct conn *conn);
/* Sends conn->out as far as the kernel takes it now, and the rest later. */
void conn_flush(struct conn *conn);
/* Back-pressure: reads nothing from this peer until conn_resume(). */
void conn_pause(struct conn *conn);
void conn_resume(struct conn *conn);
void conn_finish(struct conn *conn);
/* May be called twice. `reason` is copied; the first one counts. */
void conn_close(struct conn *conn, const char *reason);
/* Counts a rejected connection, and logs why: one line for each kind and period. */
void conn_note(struct conn *conn, enum reject_kind kind);
/* Closes a rejected connection, with such a line. */
void conn_turn_away(struct conn *conn, enum reject_kind kind);
