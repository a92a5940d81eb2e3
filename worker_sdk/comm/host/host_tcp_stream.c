/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: receive from one neighbour and send to the other at the same time. */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/host_tcp_private.h"

/* A transfer in and a transfer out at the same time; advance() moves a block each way. */
struct stream {
    struct ct_host_tcp *tcp;
    const struct ct_call *call;
    int from, to; /* members */
    bool (*is_done)(const struct stream *stream);
    /* Both return how their system call ended. */
    enum ct_moved (*send_some)(struct stream *stream);
    enum ct_moved (*recv_some)(struct stream *stream);
    bool (*may_send)(const struct stream *stream);
    bool (*may_recv)(const struct stream *stream);
};

static int fail_stream_timeout(const struct stream *stream, struct ctrun_error *err)
{
    return ct_host_tcp_fail_late(stream->tcp, stream->may_recv(stream), stream->call,
                                 err);
}

/* Fills tcp->polls with the transfers that may move now. */
static int collect_stream(const struct stream *stream)
{
    struct ct_host_tcp *tcp = stream->tcp;
    int n = 0;

    tcp->mesh->awaited = stream->may_recv(stream) ? stream->from : stream->to;
    if (stream->may_send(stream))
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[stream->to],
                                          .events = POLLOUT};
    if (stream->may_recv(stream))
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

    while (!stream->is_done(stream)) {
        enum ct_moved out = stream->may_send(stream) ? stream->send_some(stream)
                                                     : CT_MOVED_NOTHING;
        enum ct_moved in = stream->may_recv(stream) ? stream->recv_some(stream)
                                                    : CT_MOVED_NOTHING;
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

/* The ring of an all-gather. In step t a member sends slice (me - t), its own first, and receives
 * slice (me - t - 1), which it sends on in step t + 1. */
struct ring {
    struct stream stream;
    unsigned char *base;
    const size_t *offsets; /* beginnings of the slices, and the end */
    int size, me;
    int steps;
    int send_step, recv_step;
    size_t send_at, recv_at; /* bytes of the slice that are done */
};

static int ring_slice(const struct ring *ring, int step)
{
    return ((ring->me - step) % ring->size + ring->size) % ring->size;
}

static size_t ring_slice_bytes(const struct ring *ring, int slice)
{
    return ring->offsets[slice + 1] - ring->offsets[slice];
}

/* Bytes of the slice of send_step that can be sent now. */
static size_t ring_ready(const struct ring *ring)
{
    size_t all = ring_slice_bytes(ring, ring_slice(ring, ring->send_step));

    if (ring->send_step == 0 || ring->recv_step >= ring->send_step)
        return all;
    return ring->recv_step == ring->send_step - 1 ? ring->recv_at : 0;
}

/* send_at <= ring_ready(): only received bytes are sent on. */
static bool ring_may_send(const struct stream *stream)
{
    const struct ring *ring = (const void *)stream;

    return ring->send_step < ring->steps && ring->send_at < ring_ready(ring);
}

static bool ring_may_recv(const struct stream *stream)
{
    const struct ring *ring = (const void *)stream;

    return ring->recv_step < ring->steps;
}

static bool ring_is_done(const struct stream *stream)
{
    const struct ring *ring = (const void *)stream;

    return ring->send_step >= ring->steps && ring->recv_step >= ring->steps;
}

/* Skips slices that are complete, empty ones included. */
static void ring_settle(struct ring *ring)
{
    while (ring->recv_step < ring->steps &&
           ring->recv_at ==
               ring_slice_bytes(ring, ring_slice(ring, ring->recv_step + 1))) {
        ring->recv_step++;
        ring->recv_at = 0;
    }
    while (ring->send_step < ring->steps &&
           ring->send_at == ring_slice_bytes(ring, ring_slice(ring, ring->send_step)) &&
           ring->send_at == ring_ready(ring)) {
        ring->send_step++;
        ring->send_at = 0;
    }
}

static enum ct_moved ring_send_some(struct stream *stream)
{
    struct ring *ring = (void *)stream;
    size_t offset = ring->offsets[ring_slice(ring, ring->send_step)];
    enum ct_moved moved = ct_host_tcp_push(stream->tcp->mesh->data[stream->to],
                                           ring->base + offset, ring_ready(ring),
                                           &ring->send_at);

    ring_settle(ring);
    return moved;
}

static enum ct_moved ring_recv_some(struct stream *stream)
{
    struct ring *ring = (void *)stream;
    int slice = ring_slice(ring, ring->recv_step + 1);
    unsigned char *dst = ring->base + ring->offsets[slice];
    size_t bytes = ring_slice_bytes(ring, slice);
    enum ct_moved moved = ct_host_tcp_pull(stream->tcp, stream->from, dst, bytes,
                                           &ring->recv_at);

    ring_settle(ring);
    return moved;
}

/* Our slice of call->out is complete; the other slices are overwritten as they arrive. In an
 * all-reduce this is safe, although they held our input: a member sends its result only when it has
 * all parts of it, ours included. */
static int ring_run(struct ct_host_tcp *tcp, const struct ct_call *call,
                    struct ctrun_error *err)
{
    int size = tcp->mesh->size;
    struct ring ring = {.stream = {.tcp = tcp,
                                   .call = call,
                                   .from = (tcp->mesh->me + size - 1) % size,
                                   .to = (tcp->mesh->me + 1) % size,
                                   .is_done = ring_is_done,
                                   .send_some = ring_send_some,
                                   .recv_some = ring_recv_some,
                                   .may_send = ring_may_send,
                                   .may_recv = ring_may_recv},
                        .base = call->out,
                        .offsets = tcp->offsets,
                        .size = size,
                        .me = tcp->mesh->me,
                        .steps = size - 1};

    ring_settle(&ring);
    return stream_run(&ring.stream, err);
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

/* The chain of a broadcast: each member from the root on sends what it has to the next one. A
 * single slice is moved by a chain of two. */
struct chain {
    struct stream stream;
    unsigned char *data;
    size_t bytes;
    bool is_first, is_last;
    size_t sent, got;
};

/* A member in the middle sends on only what it has received: sent <= got at any time. */
static bool chain_may_send(const struct stream *stream)
{
    const struct chain *chain = (const void *)stream;

    return !chain->is_last &&
           chain->sent < (chain->is_first ? chain->bytes : chain->got);
}

static bool chain_may_recv(const struct stream *stream)
{
    const struct chain *chain = (const void *)stream;

    return !chain->is_first && chain->got < chain->bytes;
}

static bool chain_is_done(const struct stream *stream)
{
    const struct chain *chain = (const void *)stream;

    return (chain->is_first || chain->got == chain->bytes) &&
           (chain->is_last || chain->sent == chain->bytes);
}

static enum ct_moved chain_send_some(struct stream *stream)
{
    struct chain *chain = (void *)stream;

    return ct_host_tcp_push(stream->tcp->mesh->data[stream->to], chain->data,
                            chain->is_first ? chain->bytes : chain->got, &chain->sent);
}

static enum ct_moved chain_recv_some(struct stream *stream)
{
    struct chain *chain = (void *)stream;

    return ct_host_tcp_pull(stream->tcp, stream->from, chain->data, chain->bytes,
                            &chain->got);
}

static int chain_run(struct chain *chain, struct ctrun_error *err)
{
    chain->stream.is_done = chain_is_done;
    chain->stream.send_some = chain_send_some;
    chain->stream.recv_some = chain_recv_some;
    chain->stream.may_send = chain_may_send;
    chain->stream.may_recv = chain_may_recv;
    return stream_run(&chain->stream, err);
}

int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_call *call,
                                 struct ctrun_error *err)
{
    int size = tcp->mesh->size;
    int place = (tcp->mesh->me - call->peer + size) % size;
    struct chain chain = {.stream = {.tcp = tcp,
                                     .call = call,
                                     .from = (tcp->mesh->me + size - 1) % size,
                                     .to = (tcp->mesh->me + 1) % size},
                          .data = call->out,
                          .bytes = call->bytes,
                          .is_first = place == 0,
                          .is_last = place == size - 1};

    return chain_run(&chain, err);
}

/* Moves one slice, to or from `peer`. In a chain of two a member either sends or receives, so from
 * and to may be equal. */
static int move_slice(struct ct_host_tcp *tcp, const struct ct_call *call, int peer,
                      void *data, size_t bytes, bool is_send, struct ctrun_error *err)
{
    struct chain chain = {
        .stream = {.tcp = tcp, .call = call, .from = peer, .to = peer},
        .data = data,
        .bytes = bytes,
        .is_first = is_send,
        .is_last = !is_send};

    return chain_run(&chain, err);
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
        rc = move_slice(tcp, call, call->peer, slice, bytes, true, err);
    for (int i = 0; is_root && rc == 0 && i < tcp->mesh->size; i++)
        if (i != me)
            rc = move_slice(tcp, call, i, out + tcp->offsets[i],
                            tcp->offsets[i + 1] - tcp->offsets[i], false, err);
    if (!is_root)
        free(slice);
    return rc;
}
