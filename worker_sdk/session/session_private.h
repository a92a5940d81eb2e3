/* SPDX-License-Identifier: Apache-2.0 */
/* A session, for the files of this folder; nobody else includes it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/client/stop_point.h"
#include "worker_sdk/comm/comm.h"

/* Used by one thread at a time, except by ctrun_crash_report(), which gives the calling thread its
 * alternate stack. The store has one connection and one request at a time: groups and the agreed
 * stop take turns, and each sets the time limit of its own request. The notes of groups, which any
 * thread may leave, have another connection. */
struct ctrun_session {
    struct ctrun_options options;
    pid_t owner; /* the process that has opened it */
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int node_rank;
    int restart_count;
    uint64_t generation;
    char master_addr[CT_HOST_MAX];
    int master_port;
    struct ct_agent_socket agent;
    struct ct_stop_point stop_point, grow_point;
    bool agrees_on_stop;        /* with the other ranks, through the store */
    bool has_flight;            /* the agent has the record of calls */
    bool has_armed;             /* we armed the crash report and must disarm it */
    struct ctrun_store *store;  /* NULL until a group or the agreed stop needs it */
    pthread_mutex_t board_lock; /* guards the next one, and the address of the store */
    struct ctrun_store *board_store;  /* NULL until a group leaves or reads a note */
    _Atomic uint64_t *group_sequence; /* ct_session_count_groups() */
    /* Ranks may be lost while the others continue. The next fields are the agent's last decision
     * about it. */
    bool survives;
    uint32_t epoch;  /* number of the decision; 0: none so far */
    uint32_t losses; /* losses that the decision accounts for */
    int *ranks;      /* owned; the ranks left, ascending; NULL: all */
    int rank_count;
    bool grows; /* new ranks replace lost ones; the others agree when to take them in */
    bool is_new;  /* this rank is new, and no group has taken it in yet */
    bool has_met; /* this epoch's group of all ranks, new ones included, has a name */
    bool has_regrouped; /* a group was opened since then, and no rank has died */
};

/* Finds group_sequence: the number of groups that all ranks set out to open in the epoch of `world`, in
 * all sessions of this process; NULL: before any decision. 0, or -ENOMEM: it stays as it was. */
int ct_session_count_groups(struct ctrun_session *session,
                            const struct ct_worker_world *world);
/* Whether a group may be opened; `name`: of the call. -EINVAL for NULL; CTRUN_E_USAGE in a child of
 * fork(): its parent uses the same connections, and has the same rank. */
int ct_session_check(const struct ctrun_session *session, const char *name,
                     struct ctrun_error *err);
/* This process in the current world; valid until the next decision. */
struct ct_group_place ct_session_place(struct ctrun_session *session);
/* The notes of this session's groups. */
struct ct_board ct_session_board(struct ctrun_session *session);
/* Closes the connections to the worker store if the last decision has moved the store. */
void ct_session_move_store(struct ctrun_session *session,
                           const struct ct_worker_world *world);
/* Opens the session's connection to the store, unless it has one that has not ended.
 * CTRUN_E_PEER_LOST: a rank is lost that the last decision does not account for, and the store
 * perhaps with it. */
int ct_session_open_store(struct ctrun_session *session, uint64_t deadline_ms,
                          struct ctrun_error *err);
