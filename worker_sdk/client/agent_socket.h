/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's line to its agent: steps go up, the wish to stop and what is lost come down.
 *
 * A Unix stream socket with frames of wire/message.h. Next to nothing here blocks or fails:
 * without an agent, or when it goes away, every call does nothing. A step that finds the socket
 * full is dropped; the next one says more anyway. Any thread, after init and before deinit. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    CT_AGENT_STEP_EVERY_MS = 250
}; /* at most four messages a second leave */

enum {
    CT_AGENT_NAME_MAX = 108, /* a Unix socket's name, as the kernel has it */
    CT_AGENT_LOSS_MAX = 192
};

struct ct_agent_socket {
    pthread_mutex_t lock; /* all that follows */
    int fd; /* -1: no agent, or (name not empty) its queue was full and we try again */
    char name[CT_AGENT_NAME_MAX];
    int rank;
    uint64_t generation;
    struct ct_buf in;
    struct ct_buf out;
    uint64_t step;         /* the latest told to us */
    uint64_t sent_step;    /* the latest that left */
    uint64_t next_send_ms; /* not before */
    bool has_progress;     /* the agent has the page: client/progress.h */
    bool has_step;         /* any at all */
    bool has_sent;
    bool should_stop;
    char loss[CT_AGENT_LOSS_MAX];         /* empty: no node of the round is lost */
    struct ct_worker_rank_lost rank_lost; /* the last one; losses 0: none */
    struct ct_worker_world world;         /* the last one; epoch 0: none */
    struct ct_worker_grow grow;           /* the last one, where has_grow */
    bool has_grow;
    int crash_record; /* to be handed over; -1: none, or done */
    int flight;       /* likewise */
};

/* A descriptor that does not block, or a negative errno; -EAGAIN: its queue is full, try again. `name` as
 * below, shorter than CT_AGENT_NAME_MAX. */
int ct_agent_socket_connect(const char *name);
/* `name` is a path or an abstract name "@...", as in CTRUN_AGENT_SOCKET, or NULL. Says hello. deinit sends the last step. */
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
/* False when there is no agent, or no longer. */
bool ct_agent_socket_is_there(struct ct_agent_socket *agent);
/* Hands the crash record (crash.h) over, now or when there is a connection. fd stays the caller's
 * and is kept. */
void ct_agent_socket_share(struct ct_agent_socket *agent, int fd);
/* The same for the record of calls (flight.h). */
void ct_agent_socket_share_flight(struct ct_agent_socket *agent, int fd);
/* True once the agent asked for it; stays true. */
bool ct_agent_socket_should_stop(struct ct_agent_socket *agent);
/* CTRUN_E_PEER_LOST once the agent told that a node of our round is lost; else 0. */
int ct_agent_socket_check_loss(struct ct_agent_socket *agent, struct ctrun_error *err);
/* CTRUN_E_PEER_LOST, naming the last one, once more than `losses` ranks of our node are lost; else 0. */
int ct_agent_socket_check_ranks(struct ct_agent_socket *agent, uint32_t losses,
                                struct ctrun_error *err);
/* Tells the agent that this rank does nothing until it knows who continues behind the world of `epoch`, and waits
 * for the next one. It blocks, the only one here. CTRUN_E_TIMEOUT; CTRUN_E_CLOSED: the agent is gone. */
int ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                              uint64_t deadline_ms, struct ct_worker_world *out,
                              struct ctrun_error *err);
/* Whether somebody waits to be taken into the world behind that of `epoch`. */
bool ct_agent_socket_should_grow(struct ct_agent_socket *agent, uint32_t epoch);
