/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket of the agent for its own workers (SDK programs): steps and crash records come
 * in, "please stop" goes out. It lies in a folder that is closed to other users (ctl_dir.h), or,
 * where there is none, has an abstract name; only processes of our user below this process may
 * connect; the kernel tells user and pid. */
#pragma once

#include "agent/hold/hold.h"
#include "agent/loop/loop.h"
#include "worker_sdk/wire/message.h"

struct worker_socket;

enum {
    WORKER_SOCKET_NAME_MAX = 108 /* a Unix socket's name, as the kernel has it */
};

struct worker_socket_progress {
    int64_t step;     /* the last one reported; -1: none was */
    uint64_t step_ms; /* monotonic time of that report */
    bool waits;       /* it is in a collective, send or recv */
    int metric_count; /* metrics reported so far, names checked; borrowed */
    const struct ct_metric *metrics;
    const struct ct_samples
        *samples; /* only count and list; NULL: none were reported; borrowed */
};

struct worker_socket_options {
    struct loop *loop;
    const char *run_id; /* for the socket's name; borrowed during the open */
    struct hold *hold;  /* kept */
    void *context;
    /* Worker `rank` of `generation` has connected, or a child of it. */
    void (*on_hello)(void *context, int rank, uint64_t generation);
    /* Worker `rank` of `generation` has reported progress. */
    void (*on_progress)(void *context, int rank, uint64_t generation,
                        const struct worker_socket_progress *progress);
    /* Process `pid` asks who continues; worker_socket_send_world() answers, perhaps within this
     * call. False: it is told at once that it does not continue. */
    bool (*on_ask)(void *context, int rank, uint64_t generation, pid_t pid);
};

int worker_socket_open(struct worker_socket **out,
                       const struct worker_socket_options *options,
                       struct ctrun_error *err);
void worker_socket_close(struct worker_socket *worker_socket); /* NULL is fine */
/* For CTRUN_AGENT_SOCKET: a path, or "@..." for an abstract name. */
const char *worker_socket_name(const struct worker_socket *worker_socket);
/* Asks every connected worker to save and exit; workers that connect later are asked, too, until
 * worker_socket_begin_round(). Returns how many were asked. */
int worker_socket_ask_to_stop(struct worker_socket *worker_socket, const char *reason);
/* Tells every worker of this round that one of its nodes is lost, so that none waits for it. */
void worker_socket_send_loss(struct worker_socket *worker_socket, const char *text);
/* Tells every worker of this round that a rank is lost, the `losses`th, and that it may continue
 * without that rank. */
void worker_socket_send_rank_loss(struct worker_socket *worker_socket, uint32_t losses,
                                  const char *text);
/* Tells those workers of `world` that asked that they continue. A worker that asked and is not
 * in `world` still waits. */
void worker_socket_send_world(struct worker_socket *worker_socket,
                              const struct ct_worker_world *world);
/* Tells every worker of this round that a new worker waits to join the next world. */
void worker_socket_send_grow(struct worker_socket *worker_socket);
/* True when a worker is connected: only connected ones can continue when a rank is lost. */
bool worker_socket_is_used(const struct worker_socket *worker_socket);
/* True when a worker is or was connected in this round. */
bool worker_socket_was_used(const struct worker_socket *worker_socket);
/* Called for each call record of a worker of `generation`, dead ones included; fd is borrowed
 * for the call. */
typedef void worker_socket_flight_fn(void *context, int rank, int fd);
void worker_socket_each_flight(const struct worker_socket *worker_socket,
                               uint64_t generation, worker_socket_flight_fn *fn,
                               void *context);
/* Calls on_progress for each worker that shares its progress in memory, also for one that has
 * ended: a worker sends messages for only some of its steps. */
void worker_socket_refresh(struct worker_socket *worker_socket);
/* The process of worker `rank` of `generation` that calls ctrun_should_stop(); 0: none has, or it does not any more: it
 * has not for 30 s and for ten times the longest time between two of its calls. */
pid_t worker_socket_find_polling(const struct worker_socket *worker_socket, int rank,
                                 uint64_t generation);
/* See hold.h; peer is what hold_join() got here. */
void worker_socket_reply_hold(void *context, void *peer,
                              const struct ct_worker_hold_reply *reply, int fd);
/* Reads messages that have come by now from process `pid`, 0: from all; also when it is dead but
 * not yet reaped. */
void worker_socket_catch_up(struct worker_socket *worker_socket, pid_t pid);
/* Takes a crash record of `rank` in `generation`: that of `pid`, or else the last one of a
 * process below it. The caller closes it. -1: none. */
int worker_socket_take_crash(struct worker_socket *worker_socket, int rank,
                             uint64_t generation, pid_t pid);
/* `workers` processes may connect from now on; crashes of earlier rounds are forgotten. */
void worker_socket_begin_round(struct worker_socket *worker_socket, int workers);
