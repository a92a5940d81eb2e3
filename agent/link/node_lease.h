/* SPDX-License-Identifier: Apache-2.0 */
/* How long the workers of this node may live, and how long a silent server is waited for, by what it
 * has acknowledged. Pure: times of one clock in, deadlines out. ctrun-architecture(7) has the proof
 * that it is part of.
 *
 *     node_lease_welcome ── node_lease_beat, node_lease_ack ... ── node_lease_welcome (resumed) ...
 *
 * The deadline is the time at which the newest acknowledged heartbeat was *sent*, plus the lease,
 * less what a clock may be wrong in that time. What a server of an older term says counts for
 * nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    NODE_LEASE_SLOTS =
        64, /* heartbeats whose acknowledgement may still be on its way */
    NODE_LEASE_CLOCK_ERROR = 20,    /* one in so many: 5 % */
    NODE_LEASE_HEARTBEAT_MS = 1000, /* unless the server says when */
};

struct node_lease {
    uint64_t lost_after_ms; /* the lease; 0: none, workers live as long as they like */
    bool is_replaceable;    /* another server may be elected in the place of this one */
    uint64_t term;          /* the highest that was heard of */
    uint64_t sequence;      /* of the last heartbeat */
    uint64_t sent_ms[NODE_LEASE_SLOTS]; /* when, by sequence modulo the slots */
    uint64_t
        acked_ms; /* the newest one that this connection's server has acknowledged was
                           sent then; 0: none */
    uint64_t proven_ms;    /* what the deadline counts from */
    uint64_t heartbeat_ms; /* between two */
    uint64_t greeted_ms;   /* the HELLO of this connection was sent then */
    uint64_t confirmed_ms; /* what silence counts from */
    uint64_t look_ms;      /* when somebody will look whether the server is silent */
};

/* What this node has when a server welcomes it. */
enum node_lease_workers {
    NODE_LEASE_NO_WORKERS,
    NODE_LEASE_ENDING, /* of the world before */
    NODE_LEASE_RUNNING
};

/* What a server says when it welcomes us. */
struct node_lease_terms {
    uint64_t term;
    uint64_t lost_after_ms; /* 0: no lease */
    uint64_t heartbeat_ms;  /* 0: it leaves that to us */
};

/* A server has welcomed us, on a HELLO that was sent at greeted_ms. Where workers of the world before
 * live, their deadline stays; else the lease begins again. False: a later term was heard of, this
 * server has lost its lease; nothing changes. */
bool node_lease_welcome(struct node_lease *lease, const struct node_lease_terms *terms,
                        uint64_t greeted_ms, enum node_lease_workers workers);
/* The sequence of a heartbeat that is sent now. */
uint64_t node_lease_beat(struct node_lease *lease, uint64_t now_ms);
/* False: it tells nothing, or comes when the deadline is over and another server may be there. */
bool node_lease_ack(struct node_lease *lease, uint64_t sequence, uint64_t now_ms);
/* At this time no worker lives any more. */
uint64_t node_lease_deadline_ms(const struct node_lease *lease);
bool node_lease_is_over(const struct node_lease *lease, uint64_t now_ms);
/* A START counts: a heartbeat was acknowledged by who sent it, and not long ago. */
bool node_lease_is_fresh(const struct node_lease *lease, uint64_t now_ms);
/* A connection that broke may be made again until then: after that a fifth is left to end the
 * workers. Without benefit of doubt: a server that was restarted knows nothing of pauses. */
uint64_t node_lease_resume_end_ms(const struct node_lease *lease);

/* ---- Silence ---------------------------------------------------------------------------- */

/* When the server is silent unless it says something: the time of the next look, which is kept. */
uint64_t node_lease_next_look_ms(struct node_lease *lease);
/* That look, perhaps late: we were stopped (SIGSTOP, a paused VM), not the server, and it has one beat
 * to answer; where another one may have been elected, not beyond the deadline. True: it is silent. */
bool node_lease_look(struct node_lease *lease, uint64_t now_ms);
/* A silent server may be a paused one, and is waited for while its kernel has all that was sent. Never
 * where a silent server is replaced: patience would be a second world. */
bool node_lease_has_patience(const struct node_lease *lease, uint64_t now_ms);
/* ... its kernel has everything that was sent until now. True: it is silent all the same. */
bool node_lease_wait(struct node_lease *lease, uint64_t now_ms);
