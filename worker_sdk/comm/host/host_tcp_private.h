/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the TCP collectives share, and exchange.c uses of them; nobody else includes it.
 *
 *     host_tcp.c          headers to each from each, and small data with them
 *     host_tcp_reduce.c   large data, reduced by the owners of its slices
 *     host_tcp_stream.c   large data, along a ring or a chain
 *     host_tcp_pipe.c     bytes to and from one member */
#pragma once

#include <poll.h>

#include "worker_sdk/comm/host/host_tcp.h"

enum {
    /* Moved by one system call; reduced while in cache. With less the ranks of a busy host wait
     * for each other more often. */
    CT_BLOCK_BYTES = 524288,
};

/* Room for a block of each member while it is reduced: bytes for `size` members. */
#define CT_SCRATCH_BYTES(size)                                                         \
    ((size_t)(size) * ((size) <= 8     ? (size_t)CT_BLOCK_BYTES                        \
                       : (size) <= 512 ? (size_t)8 * CT_BLOCK_BYTES / (size_t)(size)   \
                                       : (size_t)8192))

/* A small message of one peer, on its way in. */
struct ct_swap {
    size_t sent;
    size_t got;
    size_t ahead; /* bytes of its slice that were sent before its header came */
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
    const unsigned char *ahead; /* data whose slices follow our header; or NULL */
    struct ct_buf *inboxes;     /* by member: what came while we were sending */
    unsigned char *scratch;     /* CT_SCRATCH_BYTES of the mesh's size */
};

/* ---- host_tcp_pipe.c --------------------------------------------------------------------- */

/* How a transfer ended on one socket. */
enum ct_moved {
    CT_MOVED_NOTHING,
    CT_MOVED_SOME,
    CT_MOVED_BROKEN
};

/* One system call on [data + *done, data + end); *done grows. */
enum ct_moved ct_host_tcp_push(int fd, const void *data, size_t end, size_t *done);
/* The same from `member`; what came early comes first. */
enum ct_moved ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                               size_t end, size_t *done);
/* Takes in what has come from everybody, so that members that all send before they receive do
 * not wait for each other; up to CT_INBOX_BYTES of a peer. A connection that broke is left to
 * whoever needs it. Appends to tcp->polls from n on who may send more, and returns how many
 * there are then; -ENOMEM. *moved: something came. */
int ct_host_tcp_take_mail(struct ct_host_tcp *tcp, int n, bool *moved);
/* The connection to `member` broke: says so in the words of whoever knows why. */
int ct_host_tcp_fail_broken(struct ct_host_tcp *tcp, int member,
                            const struct ct_call *call, struct ctrun_error *err);
/* The call's deadline has passed while it waited for data from mesh->awaited, or to it: names it,
 * and the member that does not answer where that is another. Negative. Blocks for a second. */
int ct_host_tcp_fail_late(struct ct_host_tcp *tcp, bool is_in,
                          const struct ct_call *call, struct ctrun_error *err);
/* Sleeps until one of the first n polls is ready, at most slice_ms; mesh->awaited is set before. 0, or the reason to stop;
 * what has come by then still counts: a peer that is through with this call may have failed in
 * the next, and this one can be finished. */
int ct_host_tcp_idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
                     int slice_ms, struct ctrun_error *err);

/* ---- host_tcp_reduce.c ------------------------------------------------------------------- */

/* Fills tcp->offsets with where the slices of a reduction begin. */
void ct_host_tcp_cut_slices(struct ct_host_tcp *tcp, const struct ct_call *call);
/* `out` becomes the result for slice `me` of everybody's call->in; it may be that slice itself.
 * tcp->offsets holds where the slices begin, and the end; all members have agreed on the call. */
int ct_host_tcp_reduce_scatter(struct ct_host_tcp *tcp, const struct ct_call *call,
                               void *out, struct ctrun_error *err);

/* ---- host_tcp_stream.c ------------------------------------------------------------------- */

/* All members have agreed on the call. A broadcast and an all_gather find our data in call->out. */
int ct_host_tcp_stream_all_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err);
int ct_host_tcp_stream_all_gather(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err);
int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_call *call,
                                 struct ctrun_error *err);
int ct_host_tcp_stream_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                              struct ctrun_error *err);
