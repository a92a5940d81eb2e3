/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker socket share: worker_socket.c has the connections and handles
 * messages from workers, _send.c sends messages, _progress.c reads a worker's progress, _kept.c
 * has the records that outlive a connection. */
#pragma once

#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/control/worker_socket.h"
#include "agent/loop/loop_listener.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/seldom.h"

struct worker_socket {
    struct worker_socket_options options;
    struct loop_listener *listener;
    struct ct_list connections;
    struct ct_list crashes; /* crash records of processes that are gone: one per rank */
    struct ct_list flights; /* their call records: at most as many as connections */
    int flight_count;
    int count;
    int count_max;
    bool is_stopping;
    struct ct_seldom foreign, refused, malformed, silent;
    char reason[128];
    char loss[192];                       /* empty: no node of the round is lost */
    struct ct_worker_rank_lost rank_lost; /* the last loss; losses 0: none */
    struct ct_worker_world world; /* the last one that was sent; epoch 0: none */
    bool was_used;                /* a WORKER_HELLO came in this round */
    bool has_new;                 /* a new worker waits for the next world */
    char name[WORKER_SOCKET_NAME_MAX];
    int dir; /* folder of file[]; -1: the name is abstract */
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
    int passed;       /* received, but its message may not be complete yet; -1: none */
    int crash_record; /* -1: none */
    int progress;     /* -1: none */
    struct hold_client *hold; /* NULL: it holds no checkpoints */
    int flight;               /* -1: none */
};

static inline bool worker_socket_is_in(const struct ct_worker_world *world, int rank)
{
    return rank >= 0 && rank < CT_WORLD_BYTES * 8 &&
           world->ranks[rank / 8] & 1u << rank % 8;
}

/* ---- worker_socket_kept.c */

/* Take a record over from a connection that ends, if it has one worth keeping. */
void worker_socket_keep_crash(struct connection *connection);
void worker_socket_keep_flight(struct connection *connection);
void worker_socket_forget_crashes(struct worker_socket *worker_socket);
void worker_socket_forget_flights(struct worker_socket *worker_socket);

/* ---- worker_socket_progress.c */

/* The process of this page calls ctrun_should_stop() again and again, as far as is known. */
bool worker_socket_page_polls(int page, uint64_t now_ms);
/* Calls on_progress if the worker shares its progress in memory. */
void worker_socket_report_progress(const struct connection *connection);

/* ---- worker_socket_send.c: never waits; a worker that does not read misses messages */

/* Sends all messages that the workers of the round have got so far. */
void worker_socket_send_state(struct connection *connection);
/* Answers a worker that has asked who continues. */
void worker_socket_send_answer(struct connection *connection,
                               const struct ct_worker_world *world);
