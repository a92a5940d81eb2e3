/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's connection to its agent. The worker sends its steps; the agent sends stop requests and
 * losses.
 *
 * A Unix stream socket with frames of wire/message.h. Only ct_agent_socket_ask_world() blocks.
 * Without an agent, or after it has ended, every call does nothing. A step is dropped when the
 * socket is full: the next step replaces it. Any thread, after init and before deinit. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    CT_AGENT_STEP_EVERY_MS = 250
}; /* at most four messages a second are sent */

enum {
    CT_AGENT_NAME_MAX = 108, /* length of a Unix socket's name in the kernel */
    CT_AGENT_LOSS_MAX = 192
};

struct ct_agent_socket {
    pthread_mutex_t lock; /* guards all that follows */
    /* -1: no agent, or (name not empty) its accept queue was full and we try again */
    int fd;
    char name[CT_AGENT_NAME_MAX];
    int rank;
    uint64_t generation;
    struct ct_buf in;
    struct ct_buf out;
    uint64_t step;         /* the latest that the program reported */
    uint64_t sent_step;    /* the latest that was sent */
    uint64_t next_send_ms; /* earliest time of the next send */
    bool has_progress;     /* the agent has the page: client/progress.h */
    bool has_step;         /* the program has reported a step */
    bool has_sent;
    bool should_stop;
    char loss[CT_AGENT_LOSS_MAX];         /* empty: no node of the round is lost */
    struct ct_worker_rank_lost rank_lost; /* the last one; losses 0: none */
    struct ct_worker_world world;         /* the last one; epoch 0: none */
    struct ct_worker_grow grow;           /* the last one, if has_grow */
    bool has_grow;
    int crash_record; /* descriptor to be sent; -1: none, or already sent */
    int flight;       /* descriptor to be sent, likewise */
};

/* Returns a non-blocking descriptor or a negative errno; -EAGAIN: the agent's accept queue is full,
 * try again. `name` as in ct_agent_socket_init(), shorter than CT_AGENT_NAME_MAX. */
int ct_agent_socket_connect(const char *name);
/* `name` is a path or an abstract name "@...", as in CTRUN_AGENT_SOCKET, or NULL. Sends the hello.
 * deinit sends the last step. */
void ct_agent_socket_init(struct ct_agent_socket *agent, const char *name, int rank,
                          uint64_t generation);
void ct_agent_socket_deinit(struct ct_agent_socket *agent);
void ct_agent_socket_step(struct ct_agent_socket *agent, uint64_t step);
/* See ct_progress_metric(); the agent reads it from the page. */
int ct_agent_socket_metric(struct ct_agent_socket *agent, const char *name,
                           double value);
/* See ct_progress_samples(). */
void ct_agent_socket_samples(struct ct_agent_socket *agent, const uint64_t *ids,
                             size_t count);
/* False when there is no agent, or when its connection has ended. */
bool ct_agent_socket_is_there(struct ct_agent_socket *agent);
/* Sends the crash record (crash.h) to the agent, now or once there is a connection. The caller
 * keeps fd and must leave it open. */
void ct_agent_socket_share(struct ct_agent_socket *agent, int fd);
/* The same for the record of calls (flight.h). */
void ct_agent_socket_share_flight(struct ct_agent_socket *agent, int fd);
/* True once the agent has asked this worker to stop; stays true. From the first call on the agent
 * knows that this worker asks, and gives it time before a signal that would end it. */
bool ct_agent_socket_should_stop(struct ct_agent_socket *agent);
/* CTRUN_E_PEER_LOST once the agent has reported that a node of our round is lost; else 0. */
int ct_agent_socket_check_loss(struct ct_agent_socket *agent, struct ctrun_error *err);
/* CTRUN_E_PEER_LOST, naming the rank lost last, once more than `losses` ranks of our round are
 * lost; else 0. */
int ct_agent_socket_check_ranks(struct ct_agent_socket *agent, uint32_t losses,
                                struct ctrun_error *err);
/* Tells the agent that this rank is idle until it knows the world that follows `epoch`, and waits
 * for that world. The only call here that blocks. CTRUN_E_TIMEOUT; CTRUN_E_CLOSED: no
 * connection to the agent. */
int ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                              uint64_t deadline_ms, struct ct_worker_world *out,
                              struct ctrun_error *err);
/* Whether a new rank waits to join the world that follows `epoch`. */
bool ct_agent_socket_should_grow(struct ct_agent_socket *agent, uint32_t epoch);
