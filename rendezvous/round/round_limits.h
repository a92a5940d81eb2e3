/* SPDX-License-Identifier: Apache-2.0 */
/* Caps and periods of a round, each with its reason. */
#pragma once

enum {
    /* --nnodes; spares come on top. */
    ROUND_NODES_MAX = 65535,
    /* Workers of one node: the sum over all nodes stays below 2^32. */
    ROUND_SLOTS_MAX = 65535,
    /* WAITING to all is for people, and costs a message for each member. */
    ROUND_WAITING_EVERY_MS = 1000,
    /* ... and comes again while nothing changes: a silent launcher looks like a dead one. */
    ROUND_WAITING_AGAIN_MS = 10000,
    /* What a HELLO asks for is kept above this: one core must answer thousands of agents. */
    ROUND_HEARTBEAT_MIN_MS = 10,
    /* From the announcement of a newcomer to its START: the others get its addresses first. */
    ROUND_NEWCOMER_MS = 200,
    /* A node whose connection broke has this long to come back, or a fifth of its lease: live ones
     * need a round trip, and those that wait for a dead one should not wait much. */
    ROUND_AWAY_MAX_MS = 1000,
    /* From the deadline of a node's workers to the death of the last one. */
    ROUND_KILL_MS = 2000,
    /* One in so many by which a clock may go wrong: ours is not the agent's. */
    ROUND_CLOCK_ERROR = 20,
    /* What a HELLO means that leaves these at 0. */
    ROUND_HEARTBEAT_MS = 1000,
    ROUND_LOST_AFTER_MS = 5000,
    ROUND_JOIN_TIMEOUT_MS = 600000, /* torchrun's */
    /* For all to say whether they can run another program: ctrunctl waits a second longer. */
    ROUND_OFFER_MS = 4000,
    /* Deaths on two nodes that are closer together than this have no order: a busy machine sees
     * one so late. */
    FAILURE_DOUBT_MS = 100,
};
