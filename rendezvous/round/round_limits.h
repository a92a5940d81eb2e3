/* SPDX-License-Identifier: Apache-2.0 */
/* Caps and periods of a round, each with its reason. */
#pragma once

enum {
    /* --nnodes; spares come on top. */
    ROUND_NODES_MAX = 65535,
    /* Workers of one node: the sum over all nodes stays below 2^32. */
    ROUND_SLOTS_MAX = 65535,
    /* WAITING only informs users, and costs a message for each member. */
    ROUND_WAITING_EVERY_MS = 1000,
    /* WAITING is repeated while nothing changes: without output a launcher looks dead. */
    ROUND_WAITING_AGAIN_MS = 10000,
    /* Lower limit for the period in a HELLO: one core must answer thousands of agents. */
    ROUND_HEARTBEAT_MIN_MS = 10,
    /* From the announcement of a newcomer to its START: the others get its addresses first. */
    ROUND_NEWCOMER_MS = 200,
    /* A node whose connection broke may resume for this time, or for a fifth of its lease if that
     * is less: a live node needs a round trip, and nodes that wait for a dead one should not wait
     * long. */
    ROUND_AWAY_MAX_MS = 1000,
    /* From the deadline of a node's workers to the death of the last one. */
    ROUND_KILL_MS = 2000,
    /* A clock may be wrong by one part in so many: our clock is not the agent's. */
    ROUND_CLOCK_ERROR = 20,
    /* Defaults for a HELLO that leaves these at 0. */
    ROUND_HEARTBEAT_MS = 1000,
    ROUND_LOST_AFTER_MS = 5000,
    ROUND_JOIN_TIMEOUT_MS = 600000, /* torchrun's */
    /* Time for all members to answer an OFFER of another program: ctrunctl waits a second
     * longer. */
    ROUND_OFFER_MS = 4000,
    /* Failures on two nodes that are closer together than this have no order: a busy machine may
     * notice a death this late. */
    FAILURE_DOUBT_MS = 100,
};
