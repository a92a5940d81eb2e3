/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket of the agent for its own workers (SDK programs): steps and crash records come
 * in, "please stop" goes out. It lies in a folder that is closed to other users (ctl_dir.h), or,
 * where there is none, has an abstract name; who may speak is decided by the kernel's word on the
 * peer: our user, and a process below us. */
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
    uint64_t step_ms; /* monotonic: when */
    bool waits;       /* it is in a collective, send or recv */
    int metric_count; /* those told so far, names checked; borrowed */
    const struct ct_metric *metrics;
    const struct ct_samples
        *samples; /* only count and list; NULL: none were reported; borrowed */
};

struct worker_socket_options {
    struct loop *loop;
    const char *run_id; /* for its name; borrowed while it is opened */
    struct hold *hold;  /* kept */
    void *context;
    /* Worker `rank` of `generation` has connected, or a child of it. */
    void (*on_hello)(void *context, int rank, uint64_t generation);
    /* Worker `rank` of `generation` has come so far. */
    void (*on_progress)(void *context, int rank, uint64_t generation,
                        const struct worker_socket_progress *progress);
    /* Process `pid` waits for the answer who continues, as worker_socket_send_world() says it: also within this
     * call. False: it is told that it does not. */
    bool (*on_ask)(void *context, int rank, uint64_t generation, pid_t pid);
};

int worker_socket_open(struct worker_socket **out,
                       const struct worker_socket_options *options,
                       struct ctrun_error *err);
void worker_socket_close(struct worker_socket *worker_socket); /* NULL is fine */
/* For CTRUN_AGENT_SOCKET: a path, or "@..." for an abstract name. */
const char *worker_socket_name(const struct worker_socket *worker_socket);
/* Tells every connected worker to save and leave; those that come later hear it, too, until
 * worker_socket_begin_round(). Returns how many heard it. */
int worker_socket_ask_to_stop(struct worker_socket *worker_socket, const char *reason);
/* Tells every worker of this round that a node of it is lost, so that none waits for it. */
void worker_socket_send_loss(struct worker_socket *worker_socket, const char *text);
/* Tells every worker of this round that a rank is lost, the `losses`th, and may continue without. */
void worker_socket_send_rank_loss(struct worker_socket *worker_socket, uint32_t losses,
                                  const char *text);
/* Tells those of `world` who asked that they continue, and no others; who asked and is in none of it still waits. */
void worker_socket_send_world(struct worker_socket *worker_socket,
                              const struct ct_worker_world *world);
/* Tells every worker of this round that one waits to be taken into the next world. */
void worker_socket_send_grow(struct worker_socket *worker_socket);
/* Whether any worker speaks to us: only they can continue when a rank is lost. */
bool worker_socket_is_used(const struct worker_socket *worker_socket);
/* ... or has, in this round. */
bool worker_socket_was_used(const struct worker_socket *worker_socket);
/* Each record of calls of a worker of `generation`, also of those that are dead; fd is borrowed for the call. */
typedef void worker_socket_flight_fn(void *context, int rank, int fd);
void worker_socket_each_flight(const struct worker_socket *worker_socket,
                               uint64_t generation, worker_socket_flight_fn *fn,
                               void *context);
/* on_progress for each worker that lets us read how far it is, or was when it ended: a worker tells
 * only some of its steps by a message. */
void worker_socket_refresh(struct worker_socket *worker_socket);
/* See hold.h; peer is what hold_join() got here. */
void worker_socket_reply_hold(void *context, void *peer,
                              const struct ct_worker_hold_reply *reply, int fd);
/* Takes what has come by now from process `pid`, 0: from all; also when it is dead but not yet reaped. */
void worker_socket_catch_up(struct worker_socket *worker_socket, pid_t pid);
/* The record of a crash of `rank` in `generation`, that is of `pid` or else of the last below it
 * that crashed; the caller's to close. -1: none. */
int worker_socket_take_crash(struct worker_socket *worker_socket, int rank,
                             uint64_t generation, pid_t pid);
/* `workers` processes may connect from now on; crashes of earlier rounds are forgotten. */
void worker_socket_begin_round(struct worker_socket *worker_socket, int workers);
