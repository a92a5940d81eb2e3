/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the rendezvous server, each with its reason. */
#ifndef RENDEZVOUS_LIMITS_H
#define RENDEZVOUS_LIMITS_H

/* Worker stores (store.h). What one request may hold is part of the protocol and stands in
 * worker_sdk/tcpstore/codec.h. */
enum {
    /* A value that APPEND built; a single request carries at most 8 MiB. */
    STORE_VALUE_MAX_BYTES = 64 << 20,
    /* Replies that wait for a client to read them: above this mark its next requests wait too.
     * Small, because an idle client may keep a buffer of this size. */
    STORE_OUTPUT_MARK_BYTES = 64 << 10,
    /* The largest single reply (MULTI_GET of many large values); beyond, the client is closed. */
    STORE_OUTPUT_MAX_BYTES = 128 << 20,
    /* Keys, values, queues, waits and unfinished requests of one store: beyond, who writes is
     * closed, who reads goes on. Worlds of 10 000 ranks need some 10 MiB. */
    STORE_DATA_MAX_BYTES = 1 << 30,
    /* Replies of one store that are not sent yet, all clients together. */
    STORE_OUTPUT_TOTAL_MAX_BYTES = 512 << 20,
};

enum {
    /* Runs of one ctrund: a busy site's jobs, not a flood's. */
    RUNS_MAX = 4096,
    /* --nnodes; standbys come on top. */
    ROUND_NODES_MAX = 65535,
    /* Workers of one node: the sum over all nodes stays below 2^32. */
    ROUND_SLOTS_MAX = 65535,
    /* WAITING to all is for people, and costs a message for each member. */
    ROUND_WAITING_EVERY_MS = 1000,
    /* ... and comes again while nothing changes: a silent launcher looks like a dead one. */
    ROUND_WAITING_AGAIN_MS = 10000,
    /* What a HELLO asks for is kept above this: one core must answer thousands of agents. */
    ROUND_HEARTBEAT_MIN_MS = 10,
    /* A node whose connection broke has this long to come back, or a fifth of its lease: live ones
     * need a round trip, and those that wait for a dead one should not wait much. */
    ROUND_AWAY_MAX_MS = 1000,
    /* What a HELLO means that leaves these at 0. */
    ROUND_HEARTBEAT_MS = 1000,
    ROUND_LOST_AFTER_MS = 5000,
    ROUND_JOIN_TIMEOUT_MS = 600000, /* torchrun's */
};

enum {
    /* Of RUNS_MAX small runs, or some of the largest ones. */
    JOURNAL_FILE_MAX_BYTES = 1 << 30,
    /* What is not live any more, beyond as much as is: then the file is written anew. */
    JOURNAL_FILE_SLACK_BYTES = 1 << 20,
};

enum {
    /* Every node of a large job dials at once; the kernel lowers it to somaxconn. */
    SERVER_BACKLOG = 4096,
    SERVER_CONNS_MAX = 65536,
    /* When the server is told to end, agents that have not read their verdict get this long. */
    SERVER_DRAIN_MS = 2000,
    /* Deaths on two nodes that are closer together than this have no order: a busy machine sees
     * one so late. */
    FAILURE_DOUBT_MS = 100,
    /* Endpoints of one server, stores not counted. */
    SERVER_LISTENERS_MAX = 64,
    /* Connections that never sent a byte. torch before 2.1 opens one per worker and burns a
     * core when it is closed, so they are kept; new ones are closed while there are so many. */
    CONN_SILENT_MAX = 8192,
    /* From the first byte of a frame or of HTTP to a complete HELLO or request. */
    CONN_IDENTIFY_MS = 10000,
    /* Between two lines about strangers of one kind. */
    STRANGERS_SAY_EVERY_MS = 10000,
    /* How long one MUNGE credential is given to agents; it is good for five minutes. */
    ADMISSION_CREDENTIAL_MS = 60000,
    /* Two frames of the largest size. */
    CONN_IN_MAX_BYTES = 128 << 10,
    /* Messages to an agent that reads nothing; then it is cut. */
    CONN_OUT_MAX_BYTES = 4 << 20,
    /* Bytes handed to libuv and not yet taken by the kernel; the rest waits in our buffer. */
    CONN_WRITE_MARK_BYTES = 256 << 10,
    /* Request line and headers; ours fit many times. */
    HTTP_REQUEST_MAX_BYTES = 8 << 10,
    /* A status page of RUNS_MAX small runs, or of one with thousands of members. */
    HTTP_REPLY_MAX_BYTES = 16 << 20,
};

#endif
