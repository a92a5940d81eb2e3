/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: bytes in, bytes out, deadlines and back-pressure; what they mean is their
 * user's business.
 *
 *     conn_accept ──> OPEN ──conn_finish──> FINISHING ──output sent──> SHUT ──peer closed──┐
 *                      └───────── error, end of stream, conn_close ───────────> CLOSING <──┘
 *
 * A user appends to conn->out and calls conn_flush(). FINISHING sends what is there, then says
 * so to the peer and waits until that closes too, so that a reset cannot overtake our last
 * words. on_close is called once, from the event loop and never from inside conn_close(): the
 * user may close connections while it walks over its own structures. Memory is freed after. */
#pragma once

#include <uv.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/net/rejects.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/lease.h"

struct conn;

struct conn_user {
    const char *kind; /* what is spoken, for metrics; may be NULL */
    /* `data` is borrowed; everything must be taken. */
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

/* What the other end has shown; each has a table of its own, so that one cannot fill those of
 * the others. */
enum conn_rank {
    CONN_UNPROVEN, /* nothing yet: anybody */
    CONN_CLIENT,   /* uses a store, as it may */
    CONN_MEMBER,   /* an agent of a run */
    CONN_RANKS
};

struct conn_pool;

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
    struct ct_buf writing; /* what libuv holds */
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_writing;
    bool has_more; /* it filled the buffer of its turn */
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
    size_t count;            /* that hold a descriptor */
    size_t count_max;        /* SERVER_CONNS_MAX, or what was asked for */
    size_t counts[CONN_RANKS], maxima[CONN_RANKS]; /* of `count` and `count_max` */
    struct conn
        spares[CONN_SPARES]; /* to refuse with when memory is short; free: no pool */
    struct rejects rejects;
    uint64_t bytes_in, bytes_out; /* of all connections, since birth */
    struct ct_lease_queue
        deadlines; /* connections that must get on within CONN_IDENTIFY_MS */
    uv_timer_t timer;
    uint8_t read_buffer[64 * 1024]; /* one for all: bytes are taken inside on_bytes */
};

/* At most `max` connections, 0: SERVER_CONNS_MAX; fewer when there are fewer descriptors. */
int conn_pool_init(struct conn_pool *pool, uv_loop_t *loop, size_t max);
/* Closes all connections and the timer; the loop must run until they are gone. */
void conn_pool_close(struct conn_pool *pool);

/* Takes the connection that waits at `listener` and starts to read; it is unproven, and where
 * these, or all, are too many, the oldest unproven one is closed. NULL: this one is, for that
 * reason or for lack of memory. (Left waiting, it would keep libuv from taking any other.) */
struct conn *conn_accept(struct conn_pool *pool, uv_stream_t *listener,
                         const struct conn_user *user, void *context);
/* From now on it does not make room for others. False: there are too many of that rank, and it
 * is closed. */
bool conn_prove(struct conn *conn, enum conn_rank rank);
/* Closed after CONN_IDENTIFY_MS unless cleared before. */
void conn_set_deadline(struct conn *conn);
void conn_clear_deadline(struct conn *conn);
/* Sends what is in conn->out as far as the kernel takes it, the rest when it can. */
void conn_flush(struct conn *conn);
/* Back-pressure: reads nothing from this peer until conn_resume(). */
void conn_pause(struct conn *conn);
void conn_resume(struct conn *conn);
void conn_finish(struct conn *conn);
/* Twice is harmless. `reason` is copied; the first one counts. */
void conn_close(struct conn *conn, const char *reason);
/* Counts, and says in one line a kind and period, what is wrong with it. */
void conn_note(struct conn *conn, enum reject_kind kind);
/* Closes a connection that should not be here, with such a line. */
void conn_turn_away(struct conn *conn, enum reject_kind kind);
