/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of listeners and connections, each with its reason. */
#pragma once

enum {
    /* Every node of a large job dials at once; the kernel lowers it to somaxconn. */
    SERVER_BACKLOG = 4096,
    SERVER_CONNS_MAX = 65536,
    /* Of the limit of open files, for what is no connection: listeners, journal, log, /proc. */
    SERVER_OWN_DESCRIPTORS = 64,
    /* Taken at one listener in one millisecond: heartbeats come in between. */
    LISTENER_BURST = 32,
    CONN_SPARES = 16, /* connections that can be refused at once without memory */
    /* Connections of who has not proved yet that he belongs here; or an eighth of all, if that is
     * less. Beyond, the oldest one makes room: who belongs here proves it within a round trip. */
    CONN_UNPROVEN_MAX = 8192,
    CONN_UNPROVEN_MIN = 4,
    /* What an agent may send before it is let in: HELLO is the longest. */
    CONN_UNPROVEN_FRAME_MAX_BYTES = 1024,
    /* From the first byte of a frame or of HTTP to a complete HELLO or request. */
    CONN_IDENTIFY_MS = 10000,
    /* Two frames of the largest size. */
    CONN_IN_MAX_BYTES = 128 << 10,
    /* Messages to an agent that reads nothing; then it is cut. */
    CONN_OUT_MAX_BYTES = 4 << 20,
    /* Bytes handed to libuv and not yet taken by the kernel; the rest waits in our buffer. */
    CONN_WRITE_MARK_BYTES = 256 << 10,
};
