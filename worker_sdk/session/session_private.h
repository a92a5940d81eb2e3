/* SPDX-License-Identifier: Apache-2.0 */
/* A session, for session.c and shrink.c; nobody else includes it. */
#pragma once

#include "worker_sdk/net/addr.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/client/stop_point.h"
#include "worker_sdk/comm/comm.h"

/* Used by one thread at a time, but for ctrun_crash_report(), whose alternate stack is of the
 * calling thread. The store has one connection and one request at a time: groups and the agreed
 * stop take turns on it, and each sets the limit of its own request. */
struct ctrun_session {
    struct ctrun_options options;
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
    bool agrees_on_stop;       /* with the other ranks, through the store */
    bool has_flight;           /* the agent has the record of calls */
    bool has_armed;            /* the crash report is ours to take back */
    struct ctrun_store *store; /* NULL until a group or the stop needs it */
    uint64_t group_sequence;   /* groups that all ranks set out to open in this epoch */
    /* Ranks may be lost and the others continue; what the agent decided last about it. */
    bool survives;
    uint32_t epoch;  /* 0: it never had to */
    uint32_t losses; /* that it takes account of */
    int *ranks;      /* owned; who is left, ascending; NULL: all */
    int rank_count;
    bool
        grows; /* ranks are started in the place of lost ones, and others agree when to take them in */
    bool is_new; /* this one was, and no group has taken it in yet */
    bool
        has_met; /* a group in this epoch, of all ranks, that those who are new are in, too */
};

/* Where it stands now; good until the next decision. */
struct ct_group_place ct_session_place(struct ctrun_session *session);
/* Closes the connection to the worker store if the last decision has moved that. */
void ct_session_move_store(struct ctrun_session *session,
                           const struct ct_worker_world *world);
/* Opens its own connection to the store, unless it has one. CTRUN_E_PEER_LOST: a rank is lost that the last decision
 * does not take account of, perhaps with the store. */
int ct_session_open_store(struct ctrun_session *session, uint64_t deadline_ms,
                          struct ctrun_error *err);
