/* SPDX-License-Identifier: Apache-2.0 */
/* How a node handles its rendezvous server: connects, loses it, looks for it or for the next one.
 * Pure: input is what happened, what runs here and the time; output is what to do.
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
 * A node that has lost the connection in FOUND goes back to SEEKING when the last worker is gone.
 *
 * FENCING and SEEKING end the workers before the lease does (agent/link/node_lease.h): after it another
 * world may run. A node that is welcomed is a new node and joins; a node that resumes keeps its state. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum failover_state {
    FAILOVER_FIRST,    /* no server has welcomed this node yet */
    FAILOVER_LINKED,   /* connected to its server */
    FAILOVER_RESUMING, /* the connection broke and is made again; workers run on */
    FAILOVER_SEEKING,  /* the server is lost, and the node looks for the elected one */
    FAILOVER_FOUND, /* this server does not know us: we join when the last worker is gone */
    FAILOVER_FENCING,   /* the server is lost; the last worker is not gone yet */
    FAILOVER_RETURNING, /* ... is gone, and the node looks for the server */
    FAILOVER_OVER,      /* no search any more */
    FAILOVER_STATES
};

enum failover_event {
    FAILOVER_WELCOMED, /* as a new node */
    FAILOVER_BROKE,    /* the connection; the link tries to resume */
    FAILOVER_RESUMED,  /* the membership */
    FAILOVER_LOST,     /* the link has given up: the server is gone */
    FAILOVER_REFUSED,  /* ... the link has given up for any other reason */
    FAILOVER_GONE,     /* the last worker of a stopped round */
    FAILOVER_ENDED,    /* this node ends */
    FAILOVER_EVENTS
};

/* What the node is doing. */
enum failover_work {
    FAILOVER_NO_WORK,  /* it has not joined a server */
    FAILOVER_WAITS,    /* waiting for a round */
    FAILOVER_RUNS,     /* running workers */
    FAILOVER_ENDS,     /* stopping workers, to be in the next round */
    FAILOVER_CLEANS,   /* killing orphans of workers that have succeeded */
    FAILOVER_FENCES,   /* stopping workers, because the server is lost */
    FAILOVER_LEAVES,   /* stopping workers, and then the run ends here */
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
    FAILOVER_JOIN = 16,       /* forget the previous world, and join */
    FAILOVER_SEND_AGAIN = 32, /* send again what may be lost */
    FAILOVER_FAIL = 64        /* end: there is no way to continue */
};

struct failover {
    enum failover_state state;
    uint64_t seek_deadline_ms; /* of all attempts since the last server; 0: none */
    bool is_cut; /* the connection broke or is lost since the last welcome */
};

struct failover_facts {
    enum failover_work work;
    uint64_t seek_ms; /* how long to look for the next server; 0: none is elected */
    uint64_t now_ms;
};

const char *failover_state_name(enum failover_state state);
/* The drawing above: which events a state can get while the node is at that work, and which states
 * can follow. */
bool failover_is_drawn(enum failover_state state, enum failover_event event,
                       enum failover_work work);
bool failover_is_edge(enum failover_state from, enum failover_state to);
/* Returns what to do, enum failover_action. An event or edge that is not drawn is a mistake in this
 * program: it asserts; without assertions the event has no effect. */
unsigned failover_next(struct failover *failover, enum failover_event event,
                       const struct failover_facts *facts);
/* Time left to find the next server. */
uint64_t failover_left_ms(const struct failover *failover, uint64_t now_ms);
/* Whether this node has looked since the last server: a server lost after that is not looked for
 * again. */
bool failover_has_sought(const struct failover *failover);

/* How long to look for a lost server. If its host refuses connections the server is gone: a
 * restarted server has a few seconds to come back, less the time in which the link tried to resume.
 * If the host is silent, a cable may be unplugged and come back. */
uint64_t failover_return_ms(bool is_silent, uint64_t tried_ms, uint64_t at_most_ms);
/* How long workers may take to end when the server is lost: none may run at the deadline, which is
 * left_ms away. */
uint64_t failover_grace_ms(uint64_t grace_ms, uint64_t lost_after_ms, uint64_t left_ms);
