/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the TCP collectives and exchange.c; no other file includes it.
 *
 *     host_tcp.c          headers between every two members, with small data
 *     host_tcp_reduce.c   large data, reduced by the owners of its slices
 *     host_tcp_stream.c   large data, along a ring or a chain
 *     host_tcp_pipe.c     bytes to and from one member */
#pragma once

#include <poll.h>

#include "worker_sdk/comm/host/host_tcp.h"

enum {
    /* Bytes moved by one system call; reduced while they are in cache. With fewer bytes the ranks
     * of a busy host wait for each other more often. */
    CT_BLOCK_BYTES = 524288,
};

/* Bytes for one block of each of `size` members while the blocks are reduced. */
#define CT_SCRATCH_BYTES(size)                                                         \
    ((size_t)(size) * ((size) <= 8     ? (size_t)CT_BLOCK_BYTES                        \
                       : (size) <= 512 ? (size_t)8 * CT_BLOCK_BYTES / (size_t)(size)   \
                                       : (size_t)8192))

/* A small message of one peer that is being received. */
struct ct_swap {
    size_t sent;
    size_t got;
    size_t ahead; /* bytes of its slice sent before its header arrived */
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
    const unsigned char *ahead; /* data whose slices follow our header, or NULL */
    struct ct_buf *inboxes;     /* by member: data that arrived while we sent */
    unsigned char *scratch;     /* CT_SCRATCH_BYTES of the mesh's size */
};

/* ---- host_tcp_pipe.c --------------------------------------------------------------------- */

/* The result of a transfer on one socket. */
enum ct_moved {
    CT_MOVED_NOTHING,
    CT_MOVED_SOME,
    CT_MOVED_BROKEN
};

/* One send() of [data + *done, data + end); *done grows by the bytes sent. */
enum ct_moved ct_host_tcp_push(int fd, const void *data, size_t end, size_t *done);
/* The same for receiving from `member`; bytes in its inbox come first. */
enum ct_moved ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                               size_t end, size_t *done);
/* Reads arrived data of all members into their inboxes, up to CT_INBOX_BYTES of a peer, so that
 * members that all send before they receive do not wait for each other. A broken connection is left
 * to the call that needs it. Appends to tcp->polls, from n on, the members that may send more, and
 * returns the new count; -ENOMEM. *moved: some data arrived. */
int ct_host_tcp_take_mail(struct ct_host_tcp *tcp, int n, bool *moved);
/* Whether a header of `member` has arrived that no call has taken yet; copies it. */
bool ct_host_tcp_peek(const struct ct_host_tcp *tcp, int member,
                      unsigned char header[CT_HEADER_BYTES]);
/* The connection to `member` broke: fails with the reason of the member that knows it. */
int ct_host_tcp_fail_broken(struct ct_host_tcp *tcp, int member,
                            const struct ct_call *call, struct ctrun_error *err);
/* The call's deadline has passed while it waited for data from mesh->awaited, or to send to it:
 * names that member, and the member that does not answer if that is another one. Negative. Blocks
 * for a second at most. */
int ct_host_tcp_fail_late(struct ct_host_tcp *tcp, bool is_in,
                          const struct ct_call *call, struct ctrun_error *err);
/* Sleeps until one of the first n polls is ready, at most slice_ms; the caller sets mesh->awaited
 * before. 0, or the error that ends the wait. After an error, data that have arrived still count: a
 * peer that has finished this call may have failed in the next, and this call can be finished. */
int ct_host_tcp_idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
                     int slice_ms, struct ctrun_error *err);

/* ---- host_tcp_reduce.c ------------------------------------------------------------------- */

/* Fills tcp->offsets with the beginnings of the slices of a reduction. */
void ct_host_tcp_cut_slices(struct ct_host_tcp *tcp, const struct ct_call *call);
/* Stores in `out` the result for slice `me` of every member's call->in; `out` may be that slice
 * itself. tcp->offsets holds the beginnings of the slices, and the end; all members have agreed on
 * the call. */
int ct_host_tcp_reduce_scatter(struct ct_host_tcp *tcp, const struct ct_call *call,
                               void *out, struct ctrun_error *err);

/* ---- host_tcp_stream.c ------------------------------------------------------------------- */

/* All members have agreed on the call. A broadcast and an all_gather read our data from
 * call->out. */
int ct_host_tcp_stream_all_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err);
int ct_host_tcp_stream_all_gather(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err);
int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_call *call,
                                 struct ctrun_error *err);
int ct_host_tcp_stream_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                              struct ctrun_error *err);
