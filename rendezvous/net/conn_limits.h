/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of listeners and connections, each with its reason. */
#pragma once

enum {
    /* All nodes of a large job connect at once; the kernel lowers this to somaxconn. */
    SERVER_BACKLOG = 4096,
    SERVER_CONNS_MAX = 65536,
    /* Descriptors kept back for other uses than connections: listeners, journal, log, /proc. */
    SERVER_OWN_DESCRIPTORS = 64,
    /* Connections accepted by one listener in a millisecond: heartbeats are handled in between. */
    LISTENER_BURST = 32,
    /* Between two tries to accept a connection for which no descriptor was left. */
    LISTENER_PAUSE_MS = 100,
    /* Unproven connections; or an eighth of all, if that is less. Beyond this limit the oldest one
     * is closed: a legitimate client proves itself within a round trip. */
    CONN_UNPROVEN_MAX = 8192,
    CONN_UNPROVEN_MIN = 8,
    /* Connections that members and store clients leave to unproven ones, or a quarter of all, if
     * that is less: when the server is full, it still answers HTTP, and refuses agents with a
     * reason. Each has one answer; the oldest is closed for the next one. */
    CONN_RESERVE_MAX = 8,
    /* Largest frame from an agent that is not admitted yet: HELLO is the longest. */
    CONN_UNPROVEN_FRAME_MAX_BYTES = 1024,
    /* From the first byte of a frame or of HTTP to a complete HELLO or request. */
    CONN_IDENTIFY_MS = 10000,
    /* Two frames of the largest size. */
    CONN_IN_MAX_BYTES = 128 << 10,
    /* Unsent messages to an agent that reads nothing; beyond, its connection is closed. */
    CONN_OUT_MAX_BYTES = 4 << 20,
    /* Bytes handed to libuv and not yet taken by the kernel; the rest waits in our buffer. */
    CONN_WRITE_MARK_BYTES = 256 << 10,
};
