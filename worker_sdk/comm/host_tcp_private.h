/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the TCP collectives share; nobody else includes it.
 *
 *     host_tcp.c          the sockets; headers to each from each, and small data with them
 *     host_tcp_stream.c   large data, along a ring or a chain */
#ifndef CT_COMM_HOST_TCP_PRIVATE_H
#define CT_COMM_HOST_TCP_PRIVATE_H

#include <poll.h>

#include "worker_sdk/comm/host_tcp.h"

enum {
    CT_HEADER_BYTES = 32,
    /* Moved by one system call; reduced while in cache. With less the ranks of a busy host wait
     * for each other more often. */
    CT_BLOCK_BYTES = 524288,
};

/* A small message of one peer, on its way in. */
struct ct_swap {
    size_t sent;
    size_t got;
    unsigned char bytes[CT_HEADER_BYTES + CT_SWAP_BYTES];
};

struct ct_host_tcp {
    struct ct_mesh *mesh;
    struct ct_watch watch;
    int spins;
    struct ct_swap *swaps; /* by member */
    struct pollfd *polls;
    const void **sources;
    size_t *offsets;
    unsigned char *scratch; /* CT_BLOCK_BYTES */
};

/* ---- host_tcp.c -------------------------------------------------------------------------- */

/* How a transfer ended on one socket. */
enum ct_moved {
    CT_MOVED_NOTHING,
    CT_MOVED_SOME,
    CT_MOVED_BROKEN
};

/* One system call on [data + *done, data + end); *done grows. */
enum ct_moved ct_host_tcp_push(int fd, const void *data, size_t end, size_t *done);
enum ct_moved ct_host_tcp_pull(int fd, void *data, size_t end, size_t *done);
/* The connection to `member` broke: says so in the words of whoever knows why. */
int ct_host_tcp_fail_broken(struct ct_host_tcp *tcp, int member,
                            const struct ct_call *call, struct ctrun_error *err);
/* Sleeps until one of the first n polls is ready, at most a slice. 0, or the reason to stop;
 * what has come by then still counts: a peer that is through with this call may have failed in
 * the next, and this one can be finished. */
int ct_host_tcp_idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
                     struct ctrun_error *err);

/* ---- host_tcp_stream.c ------------------------------------------------------------------- */

/* call->out holds our data, and afterwards the result; all members have agreed on the call. */
int ct_host_tcp_stream_all_reduce(struct ct_host_tcp *tcp, const struct ct_team *team,
                                  const struct ct_call *call, struct ctrun_error *err);
int ct_host_tcp_stream_all_gather(struct ct_host_tcp *tcp, const struct ct_team *team,
                                  const struct ct_call *call, struct ctrun_error *err);
int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_team *team,
                                 const struct ct_call *call, struct ctrun_error *err);
/* Send or receive: `bytes` at data, to or from call->peer. */
int ct_host_tcp_stream_move(struct ct_host_tcp *tcp, const struct ct_call *call,
                            void *data, size_t bytes, struct ctrun_error *err);

#endif
