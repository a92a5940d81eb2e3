/* SPDX-License-Identifier: Apache-2.0 */
/* What a node does about its rendezvous server: meets it, loses it, looks for it or for the next one.
 * Pure: what happened, what runs here and the time in; what to do out.
 *
 *     FIRST ──welcomed──> LINKED <──resumed── RESUMING
 *                         │ ▲ ▲ └───broke───────^ │
 *                    lost │ │ │                   │ lost
 *        ┌────────────────┴─│─│───────────────────┘
 *        │ another one may  │ │
 *        ├ be elected ──> SEEKING ──welcomed, workers still end──> FOUND ──gone──> LINKED
 *        │                  └──time is up──┐                         └──lost, none may be──┐
 *        ├ workers run ──────────────> FENCING <───────────────────────────────────────────┘
 *        │                                 │ gone, none was sought
 *        └ nothing runs ─────────────> RETURNING ──welcomed──> LINKED
 *
 *     FIRST and RETURNING ──lost──> OVER; SEEKING ──time is up, nothing runs──> OVER
 *     FENCING ──gone, and another one was sought without success──> OVER
 *     each ──this node ends──> OVER
 *
 * Who has lost the connection in FOUND goes back to SEEKING when the last worker is gone.
 *
 * FENCING and SEEKING end the workers before the lease does (agent/link/node_lease.h): after it another
 * world may live. Who is welcomed is a new node and joins; who resumes continues with what it has. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum failover_state {
    FAILOVER_FIRST,     /* no server has welcomed this node yet */
    FAILOVER_LINKED,    /* to its server */
    FAILOVER_RESUMING,  /* the connection broke and is made again; workers run on */
    FAILOVER_SEEKING,   /* the server is lost, and the elected one is looked for */
    FAILOVER_FOUND,     /* it does not know us: we join when the last worker is gone */
    FAILOVER_FENCING,   /* the server is lost; the last worker is not gone yet */
    FAILOVER_RETURNING, /* ... it is, and the server is looked for */
    FAILOVER_OVER,      /* nothing is looked for any more */
    FAILOVER_STATES
};

enum failover_event {
    FAILOVER_WELCOMED, /* as a new node */
    FAILOVER_BROKE,    /* the connection; the link tries to resume */
    FAILOVER_RESUMED,  /* the membership */
    FAILOVER_LOST,     /* the link has given up: the server is gone */
    FAILOVER_REFUSED,  /* ... for any other reason */
    FAILOVER_GONE,     /* the last worker of a stopped round */
    FAILOVER_ENDED,    /* this node is through */
    FAILOVER_EVENTS
};

/* What the node is at. */
enum failover_work {
    FAILOVER_NO_WORK,  /* it has joined no server */
    FAILOVER_WAITS,    /* for a round */
    FAILOVER_RUNS,     /* workers */
    FAILOVER_ENDS,     /* workers, to be in the next round */
    FAILOVER_CLEANS,   /* up behind workers that have succeeded */
    FAILOVER_FENCES,   /* workers, because the server is lost */
    FAILOVER_LEAVES,   /* the run when they are gone */
    FAILOVER_IS_EMPTY, /* the last worker of a stopped round is gone */
    FAILOVER_IS_DONE,  /* workers have succeeded */
    FAILOVER_IS_OVER,
    FAILOVER_WORKS
};

enum failover_action {
    FAILOVER_END_WORKERS = 1, /* within the lease; in the next round they start again */
    FAILOVER_SEEK = 2,        /* resume at any server, for failover_left_ms() */
    FAILOVER_FENCE = 4,       /* end the workers within the lease */
    FAILOVER_CONNECT = 8,     /* as a new node, for failover_return_ms() */
    FAILOVER_JOIN = 16,       /* forget the world before, and join */
    FAILOVER_SEND_AGAIN = 32, /* what may not have arrived */
    FAILOVER_FAIL = 64        /* end: there is no way to continue */
};

struct failover {
    enum failover_state state;
    uint64_t seek_deadline_ms; /* of all attempts since the last server; 0: none */
    bool is_cut; /* the connection broke or is lost since the last welcome */
};

struct failover_facts {
    enum failover_work work;
    uint64_t
        seek_ms; /* for how long the next server is looked for; 0: none is elected */
    uint64_t now_ms;
};

const char *failover_state_name(enum failover_state state);
/* The drawing above: what a state can meet while the node is at that work, and what can follow it. */
bool failover_is_drawn(enum failover_state state, enum failover_event event,
                       enum failover_work work);
bool failover_is_edge(enum failover_state from, enum failover_state to);
/* Returns what to do, enum failover_action. An event or edge that is not drawn is a mistake of ours: it
 * asserts; without assertions the event does nothing. */
unsigned failover_next(struct failover *failover, enum failover_event event,
                       const struct failover_facts *facts);
/* To find the next server. */
uint64_t failover_left_ms(const struct failover *failover, uint64_t now_ms);
/* Since the last server: who is lost after that is not waited for once more. */
bool failover_has_sought(const struct failover *failover);

/* For how long a lost server is looked for. One whose host refuses connections is gone: a restarted
 * one has a few seconds to come back, less those in which it was tried to resume. One that is only
 * silent may be behind a cable that somebody plugs in again. */
uint64_t failover_return_ms(bool is_silent, uint64_t tried_ms, uint64_t at_most_ms);
/* So long workers may take to end when the server is lost: none of them lives at the deadline, which
 * is left_ms away. */
uint64_t failover_grace_ms(uint64_t grace_ms, uint64_t lost_after_ms, uint64_t left_ms);
