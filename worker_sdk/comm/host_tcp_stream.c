/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: from one neighbour, to the other, both ways at the same time. */
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host_tcp_private.h"
#include "worker_sdk/comm/reduce.h"

/* What goes in and out at the same time; advance() moves a block each way. */
struct stream {
    struct ct_host_tcp *tcp;
    const struct ct_call *call;
    int from, to; /* members */
    bool (*is_done)(const struct stream *stream);
    /* These two say which system call they made did something. */
    enum ct_moved (*send_some)(struct stream *stream);
    enum ct_moved (*recv_some)(struct stream *stream);
    bool (*may_send)(const struct stream *stream);
    bool (*may_recv)(const struct stream *stream);
};

static int fail_stream_timeout(const struct stream *stream, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    char who[CT_PEER_TEXT_MAX];
    bool is_in = stream->may_recv(stream);

    ct_call_format(text, stream->call);
    ct_peer_format(who, &stream->tcp->mesh->peers[is_in ? stream->from : stream->to]);
    return ct_fail(err, CTRUN_E_TIMEOUT, "%s: %s %s stopped half-way", text,
                   is_in ? "data from" : "data to", who);
}

/* What may move now, for poll(). */
static int collect_stream(const struct stream *stream)
{
    struct ct_host_tcp *tcp = stream->tcp;
    int n = 0;

    if (stream->may_send(stream))
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[stream->to],
                                          .events = POLLOUT};
    if (stream->may_recv(stream))
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[stream->from],
                                          .events = POLLIN};
    return n;
}

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
            return bad; /* nothing more has come since */
        if ((bad = ct_host_tcp_idle(tcp, collect_stream(stream), stream->call, err)) ==
                0 &&
            ct_now_ms() >= stream->call->deadline_ms)
            return fail_stream_timeout(stream, err);
    }
    return 0;
}

/* The ring. In step t a place sends slice (me - t) and receives slice (me - t - 1), which it
 * sends on in step t + 1. In the first `reduce_steps` what comes in is reduced with our own. */
struct ring {
    struct stream stream;
    unsigned char *base;
    const size_t *offsets; /* of the slices, and the end */
    int size, me;
    int steps, reduce_steps;
    struct ct_reduction how;
    int divisor; /* applied in the last reducing step */
    int send_step, recv_step;
    size_t send_at, recv_at; /* bytes of the slice that are done */
    size_t in_scratch;       /* bytes received and not yet reduced */
};

static int ring_slice(const struct ring *ring, int step)
{
    return ((ring->me - step) % ring->size + ring->size) % ring->size;
}

static size_t ring_slice_bytes(const struct ring *ring, int slice)
{
    return ring->offsets[slice + 1] - ring->offsets[slice];
}

/* How far the slice of send_step is ready to go out. */
static size_t ring_ready(const struct ring *ring)
{
    size_t all = ring_slice_bytes(ring, ring_slice(ring, ring->send_step));

    if (ring->send_step == 0 || ring->recv_step >= ring->send_step)
        return all;
    return ring->recv_step == ring->send_step - 1 ? ring->recv_at : 0;
}

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

/* Steps over slices that are complete, empty ones included. */
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

static enum ct_moved ring_recv_reduced(struct ring *ring, unsigned char *dst,
                                       size_t left)
{
    struct ct_host_tcp *tcp = ring->stream.tcp;
    size_t block = left < CT_BLOCK_BYTES ? left : CT_BLOCK_BYTES;
    struct ct_reduction how = ring->how;
    const void *src[2] = {tcp->scratch, dst};
    void *to = dst;
    enum ct_moved moved = ct_host_tcp_pull(tcp->mesh->data[ring->stream.from],
                                           tcp->scratch, block, &ring->in_scratch);

    if (ring->in_scratch == block) {
        how.divisor = ring->recv_step == ring->reduce_steps - 1 ? ring->divisor : 1;
        ct_reduce(&how, &to, 1, src, 2, block / ctrun_dtype_size(how.dtype));
        ring->recv_at += block;
        ring->in_scratch = 0;
    }
    return moved;
}

static enum ct_moved ring_recv_some(struct stream *stream)
{
    struct ring *ring = (void *)stream;
    int slice = ring_slice(ring, ring->recv_step + 1);
    unsigned char *dst = ring->base + ring->offsets[slice];
    size_t bytes = ring_slice_bytes(ring, slice);
    enum ct_moved moved;

    if (ring->recv_step < ring->reduce_steps)
        moved = ring_recv_reduced(ring, dst + ring->recv_at, bytes - ring->recv_at);
    else
        moved = ct_host_tcp_pull(stream->tcp->mesh->data[stream->from], dst, bytes,
                                 &ring->recv_at);
    ring_settle(ring);
    return moved;
}

static int ring_run(struct ct_host_tcp *tcp, const struct ct_team *team,
                    const struct ct_call *call, int reduce_steps,
                    struct ctrun_error *err)
{
    int size = team->size;
    struct ring ring = {.stream = {.tcp = tcp,
                                   .call = call,
                                   .from = team->members[(team->me + size - 1) % size],
                                   .to = team->members[(team->me + 1) % size],
                                   .is_done = ring_is_done,
                                   .send_some = ring_send_some,
                                   .recv_some = ring_recv_some,
                                   .may_send = ring_may_send,
                                   .may_recv = ring_may_recv},
                        .base = call->out,
                        .offsets = tcp->offsets,
                        .size = size,
                        .me = team->me,
                        .steps = reduce_steps + size - 1,
                        .reduce_steps = reduce_steps,
                        .how = {call->dtype, call->op, 1},
                        .divisor = call->divisor};

    ring_settle(&ring);
    return stream_run(&ring.stream, err);
}

int ct_host_tcp_stream_all_reduce(struct ct_host_tcp *tcp, const struct ct_team *team,
                                  const struct ct_call *call, struct ctrun_error *err)
{
    size_t element = ctrun_dtype_size(call->dtype);
    size_t each = call->count / (size_t)team->size;
    size_t rest = call->count % (size_t)team->size;

    for (size_t i = 0; i <= (size_t)team->size; i++)
        tcp->offsets[i] = (each * i + (i < rest ? i : rest)) * element;
    return ring_run(tcp, team, call, team->size - 1, err);
}

int ct_host_tcp_stream_all_gather(struct ct_host_tcp *tcp, const struct ct_team *team,
                                  const struct ct_call *call, struct ctrun_error *err)
{
    for (size_t i = 0; i <= (size_t)team->size; i++)
        tcp->offsets[i] = call->bytes * i;
    return ring_run(tcp, team, call, 0, err);
}

/* The chain of a broadcast: the root sends to the next place, which sends on what it has. The
 * two ends of send and recv are a chain of two. */
struct chain {
    struct stream stream;
    unsigned char *data;
    size_t bytes;
    bool is_first, is_last;
    size_t sent, got;
};

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

    return ct_host_tcp_pull(stream->tcp->mesh->data[stream->from], chain->data,
                            chain->bytes, &chain->got);
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

int ct_host_tcp_stream_broadcast(struct ct_host_tcp *tcp, const struct ct_team *team,
                                 const struct ct_call *call, struct ctrun_error *err)
{
    int size = team->size;
    int place = (team->me - call->peer + size) % size;
    struct chain chain = {
        .stream = {.tcp = tcp,
                   .call = call,
                   .from = team->members[(team->me + size - 1) % size],
                   .to = team->members[(team->me + 1) % size]},
        .data = call->out,
        .bytes = call->bytes,
        .is_first = place == 0,
        .is_last = place == size - 1};

    return chain_run(&chain, err);
}

int ct_host_tcp_stream_move(struct ct_host_tcp *tcp, const struct ct_call *call,
                            void *data, size_t bytes, struct ctrun_error *err)
{
    bool is_send = call->kind == CT_CALL_SEND;
    struct chain chain = {
        .stream = {.tcp = tcp, .call = call, .from = call->peer, .to = call->peer},
        .data = data,
        .bytes = bytes,
        .is_first = is_send,
        .is_last = !is_send};

    return chain_run(&chain, err);
}
