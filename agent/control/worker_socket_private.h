/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker socket share: worker_socket.c has the connections and what comes in, _send.c what goes
 * out, _progress.c reads how far a worker is, _kept.c has what outlives a connection. */
#pragma once

#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/control/worker_socket.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/seldom.h"

struct worker_socket {
    struct worker_socket_options options;
    struct loop_watch *listener;
    struct ct_list connections;
    struct ct_list crashes; /* records of those that are gone: one a rank */
    struct ct_list flights; /* likewise, as many as may connect */
    int flight_count;
    int count;
    int count_max;
    bool is_stopping;
    struct ct_seldom foreign, refused, malformed, silent;
    char reason[128];
    char loss[192];                       /* empty: no node of the round is lost */
    struct ct_worker_rank_lost rank_lost; /* the last one; losses 0: none */
    uint32_t epoch;                       /* of the last world that was sent */
    bool was_used;                        /* a WORKER_HELLO came in this round */
    bool has_new;                         /* a new worker waits for the next world */
    char name[WORKER_SOCKET_NAME_MAX];
    int dir; /* where it is file[]; -1: its name is abstract */
    char file[CTL_DIR_NAME_MAX];
};

struct connection {
    struct ct_list node;
    struct worker_socket *worker_socket;
    struct loop_watch *socket;
    struct loop_timer *hello_timer; /* runs until WORKER_HELLO */
    struct ct_buf in;
    bool is_known; /* it has sent WORKER_HELLO */
    bool asks;     /* it has asked who continues, and has no answer */
    int rank;
    uint64_t generation;
    pid_t pid;
    int passed; /* a descriptor that came; its message may not be complete yet; -1: none */
    int crash_record;         /* -1: none */
    int progress;             /* -1: none */
    struct hold_client *hold; /* NULL: it holds no checkpoints */
    int flight;               /* -1: none */
};

/* Closes and sets to -1; nothing when it is -1. */
static inline void worker_socket_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- worker_socket_kept.c */

/* Take over a record of a connection that ends, if there is one that is worth keeping. */
void worker_socket_keep_crash(struct connection *connection);
void worker_socket_keep_flight(struct connection *connection);
void worker_socket_forget_crashes(struct worker_socket *worker_socket);
void worker_socket_forget_flights(struct worker_socket *worker_socket);

/* ---- worker_socket_progress.c */

/* Calls on_progress, where the worker lets us read how far it is. */
void worker_socket_report_progress(const struct connection *connection);

/* ---- worker_socket_send.c: nothing waits; a worker that does not read misses what it is sent */

/* Sends what all workers of the round have been sent by now. */
void worker_socket_send_state(struct connection *connection);
/* The answer to a worker that has asked who continues. */
void worker_socket_send_answer(struct connection *connection,
                               const struct ct_worker_world *world);
