/* SPDX-License-Identifier: Apache-2.0 */
/* How long the workers of this node may live, and how long to wait for a silent server, from the
 * heartbeats that it has acknowledged. Pure: times of one clock in, deadlines out.
 * ctrun-architecture(7) has the proof that relies on this.
 *
 *     node_lease_welcome ── node_lease_beat, node_lease_ack ... ── node_lease_welcome (resumed) ...
 *
 * The deadline is the time at which the newest acknowledged heartbeat was *sent*, plus the
 * lease, less the possible clock error in that time. Messages of a server of an older term do
 * not count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    NODE_LEASE_SLOTS = 64,       /* heartbeats whose acknowledgement may still come */
    NODE_LEASE_CLOCK_ERROR = 20, /* clock error: one part in so many, 5 % */
    NODE_LEASE_HEARTBEAT_MS = 1000, /* unless the server gives a period */
};

struct node_lease {
    uint64_t lost_after_ms; /* the lease; 0: none, workers have no deadline */
    bool is_replaceable;    /* another server may be elected in the place of this one */
    uint64_t term;          /* the highest term seen */
    uint64_t sequence;      /* of the last heartbeat */
    /* when each was sent, by sequence modulo the slots */
    uint64_t sent_ms[NODE_LEASE_SLOTS];
    /* when the newest heartbeat that this connection's server has acknowledged was sent; 0: none */
    uint64_t acked_ms;
    uint64_t proven_ms;    /* start of the lease: the deadline counts from it */
    uint64_t heartbeat_ms; /* between two heartbeats */
    uint64_t greeted_ms;   /* when the HELLO of this connection was sent */
    uint64_t confirmed_ms; /* silence counts from it */
    uint64_t look_ms;      /* when node_lease_look() is due */
};

/* State of this node's workers when a server welcomes it. */
enum node_lease_workers {
    NODE_LEASE_NO_WORKERS,
    NODE_LEASE_ENDING, /* of the world before */
    NODE_LEASE_RUNNING
};

/* Values of the server's WELCOME. */
struct node_lease_terms {
    uint64_t term;
    uint64_t lost_after_ms; /* 0: no lease */
    uint64_t heartbeat_ms;  /* 0: NODE_LEASE_HEARTBEAT_MS */
};

/* A server has welcomed us, on a HELLO that was sent at greeted_ms. If workers of the previous
 * world live, their deadline stays; else the lease begins again. False: a later term is known,
 * so this server has lost its lease; nothing changes. */
bool node_lease_welcome(struct node_lease *lease, const struct node_lease_terms *terms,
                        uint64_t greeted_ms, enum node_lease_workers workers);
/* Notes a heartbeat that is sent now; returns its sequence number. */
uint64_t node_lease_beat(struct node_lease *lease, uint64_t now_ms);
/* False: the acknowledgement does not count: it matches no recent heartbeat, or it comes after
 * the deadline, when another server may have been elected. */
bool node_lease_ack(struct node_lease *lease, uint64_t sequence, uint64_t now_ms);
/* At this time all workers must have ended. */
uint64_t node_lease_deadline_ms(const struct node_lease *lease);
bool node_lease_is_over(const struct node_lease *lease, uint64_t now_ms);
/* True: a START counts, because its sender has acknowledged a heartbeat, and not long ago. */
bool node_lease_is_fresh(const struct node_lease *lease, uint64_t now_ms);
/* Until when a broken connection may be made again: the fifth of the lease after that is for
 * ending the workers. A server whose kernel acknowledges gets no extra time here: a restarted
 * server knows nothing of a pause. */
uint64_t node_lease_resume_end_ms(const struct node_lease *lease);

/* ---- Silence ---------------------------------------------------------------------------- */

/* When the server counts as silent unless a message comes: the time of the next look, which is
 * kept. */
uint64_t node_lease_next_look_ms(struct node_lease *lease);
/* That look, which may be late: then we were stopped (SIGSTOP, a paused VM), not the server, and
 * it gets one more heartbeat period to answer; where another server may have been elected, not
 * beyond the deadline. True: it is silent. */
bool node_lease_look(struct node_lease *lease, uint64_t now_ms);
/* True: a silent server may be paused, and the link waits while its kernel has all bytes that
 * were sent. False where a silent server can be replaced: waiting could then lead to two worlds. */
bool node_lease_has_patience(const struct node_lease *lease, uint64_t now_ms);
/* To be called when the server's kernel has all bytes sent so far. True: the server is silent
 * all the same. */
bool node_lease_wait(struct node_lease *lease, uint64_t now_ms);
