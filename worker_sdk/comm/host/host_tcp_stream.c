/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: receive from one neighbour and send to the other at the same time. */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/host_tcp_private.h"

/* Slices of `base`, backwards and round: what arrives from `from` begins with slice first - 1, what is
 * sent to `to` with slice first. Positions are bytes of these sequences. A member sends on only what it
 * has: `own` bytes at the start, and what has arrived. */
struct stream {
    struct ct_host_tcp *tcp;
    const struct ct_call *call;
    int from, to; /* members */
    unsigned char *base;
    const size_t *offsets; /* beginnings of the slices, and the end */
    int size, first;       /* slices */
    size_t own, in, out;   /* in, out: bytes in all */
    size_t got, sent;
};

static bool may_recv(const struct stream *stream)
{
    return stream->got < stream->in;
}

/* Bytes that can be sent now. */
static size_t ready(const struct stream *stream)
{
    const size_t has = stream->own + stream->got;

    return (has < stream->out ? has : stream->out) - stream->sent;
}

/* The slice with byte *at of the sequence that begins with `slice`; *at becomes the offset in it. */
static unsigned char *locate(const struct stream *stream, int slice, size_t *at,
                             size_t *bytes)
{
    for (;; slice = (slice ? slice : stream->size) - 1) {
        *bytes = stream->offsets[slice + 1] - stream->offsets[slice];
        if (*at < *bytes)
            return stream->base + stream->offsets[slice];
        *at -= *bytes;
    }
}

static enum ct_moved send_some(struct stream *stream)
{
    size_t at = stream->sent, left = ready(stream), bytes, before;
    enum ct_moved moved;

    if (left == 0)
        return CT_MOVED_NOTHING;
    unsigned char *data = locate(stream, stream->first, &at, &bytes);
    before = at;
    moved = ct_host_tcp_push(stream->tcp->mesh->data[stream->to], data,
                             bytes - at < left ? bytes : at + left, &at);
    stream->sent += at - before;
    return moved;
}

static enum ct_moved recv_some(struct stream *stream)
{
    size_t at = stream->got, bytes, before;
    enum ct_moved moved;

    if (!may_recv(stream))
        return CT_MOVED_NOTHING;
    unsigned char *data = locate(
        stream, (stream->first + stream->size - 1) % stream->size, &at, &bytes);
    before = at;
    moved = ct_host_tcp_pull(stream->tcp, stream->from, data, bytes, &at);
    stream->got += at - before;
    return moved;
}

static int fail_stream_timeout(const struct stream *stream, struct ctrun_error *err)
{
    return ct_host_tcp_fail_late(stream->tcp, may_recv(stream), stream->call, err);
}

/* Fills tcp->polls with the transfers that may move now. */
static int collect_stream(const struct stream *stream)
{
    struct ct_host_tcp *tcp = stream->tcp;
    int n = 0;

    tcp->mesh->awaited = may_recv(stream) ? stream->from : stream->to;
    if (ready(stream) > 0)
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[stream->to],
                                          .events = POLLOUT};
    if (may_recv(stream))
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[stream->from],
                                          .events = POLLIN};
    return n;
}

/* Sends and receives alternately, as far as possible: in a ring each member's receiver is another
 * member's sender, and a member that only sent until it was done would wait forever once all
 * buffers are full. */
static int stream_run(struct stream *stream, struct ctrun_error *err)
{
    struct ct_host_tcp *tcp = stream->tcp;
    int quiet = 0;
    int bad = 0;

    while (stream->got < stream->in || stream->sent < stream->out) {
        const enum ct_moved out = send_some(stream);
        const enum ct_moved in = recv_some(stream);

        if (out == CT_MOVED_BROKEN || in == CT_MOVED_BROKEN)
            return bad < 0 ? bad
                           : ct_host_tcp_fail_broken(
                                 tcp, in == CT_MOVED_BROKEN ? stream->from : stream->to,
                                 stream->call, err);
        quiet = out == CT_MOVED_SOME || in == CT_MOVED_SOME ? 0 : quiet + 1;
        if (quiet <= tcp->spins)
            continue;
        if (bad < 0)
            return bad; /* no data have arrived since */
        if ((bad = ct_host_tcp_idle(tcp, collect_stream(stream), stream->call,
                                    CT_SLICE_MS, err)) == 0 &&
            ct_now_ms() >= stream->call->deadline_ms)
            bad = fail_stream_timeout(stream, err);
    }
    return 0;
}

/* The ring of an all-gather: a member sends its own slice first, then those that arrive, but for the
 * last one, which the next member has. Our slice of call->out is complete; the other slices are
 * overwritten as they arrive. In an all-reduce this is safe, although they held our input: a member
 * sends its result only when it has all parts of it, ours included. */
static int ring_run(struct ct_host_tcp *tcp, const struct ct_call *call,
                    struct ctrun_error *err)
{
    const int size = tcp->mesh->size, me = tcp->mesh->me, next = (me + 1) % size;
    const size_t *offsets = tcp->offsets;
    const size_t own = offsets[me + 1] - offsets[me];
    struct stream stream = {.tcp = tcp,
                            .call = call,
                            .from = (me + size - 1) % size,
                            .to = next,
                            .base = call->out,
                            .offsets = offsets,
                            .size = size,
                            .first = me,
                            .own = own,
                            .in = offsets[size] - own,
                            .out = offsets[size] - (offsets[next + 1] - offsets[next])};

    return stream_run(&stream, err);
}

/* A reduce-scatter into its place in `out`, then an all-gather in the ring: each of n members
 * sends 2 (n - 1) / n times the data, the least that an all-reduce can do. */
int ct_host_tcp_stream_all_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err)
{
    unsigned char *out = call->out;
    int rc;

    rc = ct_host_tcp_reduce_scatter(tcp, call, out + tcp->offsets[tcp->mesh->me], err);
    return rc < 0 ? rc : ring_run(tcp, call, err);
}

int ct_host_tcp_stream_all_gather(struct ct_host_tcp *tcp, const struct ct_call *call,
                                  struct ctrun_error *err)
{
    for (size_t i = 0; i <= (size_t)tcp->mesh->size; i++)
        tcp->offsets[i] = call->bytes * i;
    return ring_run(tcp, call, err);
}

/* One slice along a chain of members. from, to: -1 at its ends. */
static int chain_run(struct ct_host_tcp *tcp, const struct ct_call *call, int from,
                     int to, void *data, size_t bytes, struct ctrun_error *err)
{
    const size_t offsets[] = {0, bytes};
    struct stream stream = {.tcp = tcp,
                            .call = call,
                            .from = from,
                            .to = to,
                            .base = data,
                            .offsets = offsets,
                            .size = 1,
                            .own = from < 0 ? bytes : 0,
                            .in = from < 0 ? 0 : bytes,
                            .out = to < 0 ? 0 : bytes};

    return stream_run(&stream, err);
}

/* Each member from the root on sends what it has to the next one. */
int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_call *call,
                                 struct ctrun_error *err)
{
    const int size = tcp->mesh->size, me = tcp->mesh->me, next = (me + 1) % size;

    return chain_run(tcp, call, me == call->peer ? -1 : (me + size - 1) % size,
                     next == call->peer ? -1 : next, call->out, call->bytes, err);
}

/* Each member reduces its slice, and the root collects them. */
int ct_host_tcp_stream_reduce(struct ct_host_tcp *tcp, const struct ct_call *call,
                              struct ctrun_error *err)
{
    int me = tcp->mesh->me;
    bool is_root = call->peer == me;
    unsigned char *out = call->out;
    unsigned char *slice;
    size_t bytes;
    int rc;

    bytes = tcp->offsets[me + 1] - tcp->offsets[me];
    /* Only the root's `out` may be written: the others reduce their slice in a separate buffer. One
     * byte more, because a slice may be empty. */
    if (!(slice = is_root ? out + tcp->offsets[me] : ct_zalloc(bytes + 1)))
        return ct_fail(err, -ENOMEM, "reduce: out of memory for %zu bytes", bytes);
    rc = ct_host_tcp_reduce_scatter(tcp, call, slice, err);
    if (rc == 0 && !is_root)
        rc = chain_run(tcp, call, -1, call->peer, slice, bytes, err);
    for (int i = 0; is_root && rc == 0 && i < tcp->mesh->size; i++)
        if (i != me)
            rc = chain_run(tcp, call, i, -1, out + tcp->offsets[i],
                           tcp->offsets[i + 1] - tcp->offsets[i], err);
    if (!is_root)
        free(slice);
    return rc;
}
