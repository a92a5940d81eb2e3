/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host_tcp.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/reduce.h"

enum {
    HEADER_MAGIC = 0x31746d63, /* "cmt1" */
    HEADER_BYTES = 32,
    /* Moved by one system call; reduced while in cache. With less the ranks of a busy host wait
     * for each other more often. */
    BLOCK_BYTES = 524288,
    SPINS = 60, /* tries, half a µs each, before poll(): a wake-up costs 30 µs */
};

/* A small message of one peer, on its way in. */
struct swap {
    size_t sent;
    size_t got;
    unsigned char bytes[HEADER_BYTES + CT_SWAP_BYTES];
};

struct ct_host_tcp {
    struct ct_mesh *mesh;
    struct ct_watch watch;
    int spins;
    struct swap *swaps; /* by member */
    struct pollfd *polls;
    const void **sources;
    size_t *offsets;
    unsigned char *scratch; /* BLOCK_BYTES */
};

/* How a transfer ended on one socket. */
enum moved {
    MOVED_NOTHING,
    MOVED_SOME,
    MOVED_BROKEN
};

int ct_host_tcp_create(struct ct_host_tcp **out, struct ct_mesh *mesh,
                       struct ct_watch watch, struct ctrun_error *err)
{
    struct ct_host_tcp *tcp = ct_zalloc(sizeof *tcp);
    size_t size = (size_t)mesh->size;
    cpu_set_t cpus;
    int neighbours = 0;

    if (!tcp)
        return ct_fail(err, -ENOMEM, "open group: no memory");
    tcp->mesh = mesh;
    tcp->watch = watch;
    tcp->swaps = ct_zalloc_array(size, sizeof *tcp->swaps);
    tcp->polls = ct_zalloc_array(size + 1, sizeof *tcp->polls);
    tcp->sources = ct_zalloc_array(size, sizeof *tcp->sources);
    tcp->offsets = ct_zalloc_array(size + 1, sizeof *tcp->offsets);
    tcp->scratch = ct_zalloc(BLOCK_BYTES);
    if (!tcp->swaps || !tcp->polls || !tcp->sources || !tcp->offsets || !tcp->scratch) {
        ct_host_tcp_destroy(tcp);
        return ct_fail(err, -ENOMEM, "open group: no memory for %zu members", size);
    }
    for (int i = 0; i < mesh->size; i++)
        neighbours += mesh->peers[i].net_id == mesh->peers[mesh->me].net_id;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && neighbours <= CPU_COUNT(&cpus))
        tcp->spins = SPINS;
    *out = tcp;
    return 0;
}

void ct_host_tcp_destroy(struct ct_host_tcp *tcp)
{
    if (!tcp)
        return;
    free(tcp->swaps);
    free(tcp->polls);
    free(tcp->sources);
    free(tcp->offsets);
    free(tcp->scratch);
    free(tcp);
}

/* ---- Moving bytes ----------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One system call; *done grows. */
static enum moved push(int fd, const void *data, size_t end, size_t *done)
{
    ssize_t n;

    if (*done >= end)
        return MOVED_NOTHING;
    n = send(fd, (const unsigned char *)data + *done, smaller(end - *done, BLOCK_BYTES),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? MOVED_NOTHING : MOVED_BROKEN;
    *done += (size_t)n;
    return MOVED_SOME;
}

static enum moved pull(int fd, void *data, size_t end, size_t *done)
{
    ssize_t n;

    if (*done >= end)
        return MOVED_NOTHING;
    n = recv(fd, (unsigned char *)data + *done, smaller(end - *done, BLOCK_BYTES),
             MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? MOVED_NOTHING : MOVED_BROKEN;
    *done += (size_t)n;
    return n == 0 ? MOVED_BROKEN : MOVED_SOME;
}

/* The connection to `member` broke: says so in the words of whoever knows why. */
static int fail_broken(struct ct_host_tcp *tcp, int member, const struct ct_call *call,
                       struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    int rc = ct_mesh_explain(tcp->mesh, member, err);

    ct_call_format(text, call);
    return rc == CTRUN_E_PEER_LOST ? ct_wrap(err, "%s", text) : rc;
}

/* Sleeps until one of the first n polls is ready, at most a slice. 0, or the reason to stop;
 * what has come by then still counts: a peer that is through with this call may have failed in
 * the next, and this one can be finished. */
static int idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
                struct ctrun_error *err)
{
    int left_ms = ct_left_ms(call->deadline_ms);
    int rc = 0;

    tcp->polls[n] = (struct pollfd){.fd = tcp->mesh->watch, .events = POLLIN};
    if (poll(tcp->polls, (nfds_t)n + 1, left_ms < CT_SLICE_MS ? left_ms : CT_SLICE_MS) <
            0 &&
        errno != EINTR)
        return ct_fail(err, -errno, "poll: %s", strerror(errno));
    if (tcp->watch.check)
        rc = tcp->watch.check(tcp->watch.context, err);
    if (rc == 0)
        rc = ct_mesh_check(tcp->mesh, CT_REASON_GRACE_MS, err);
    return rc;
}

/* ---- Each to each: the header, and small data ------------------------------------------- */

static void write_header(unsigned char *dst, const struct ct_call *call, bool is_p2p)
{
    struct ct_writer out;

    ct_writer_init(&out, dst, HEADER_BYTES);
    ct_write_u32(&out, HEADER_MAGIC);
    ct_write_u8(&out, (uint8_t)(is_p2p ? CT_CALL_SEND : call->kind));
    ct_write_u8(&out, (uint8_t)call->dtype);
    ct_write_u8(&out, (uint8_t)call->op);
    ct_write_u8(&out, 0);
    ct_write_u32(&out, is_p2p ? 0 : (uint32_t)call->peer);
    ct_write_u32(&out, 0);
    ct_write_u64(&out, is_p2p ? 0 : call->number);
    ct_write_u64(&out, call->count);
}

static int fail_mismatch(const struct ct_host_tcp *tcp, int member,
                         const unsigned char *theirs, const struct ct_call *call,
                         struct ctrun_error *err)
{
    int me = tcp->mesh->peers[tcp->mesh->me].rank;
    int peer = tcp->mesh->peers[member].rank;
    struct ct_call other = {.kind = (enum ct_call_kind)theirs[4],
                            .dtype = (enum ctrun_dtype)theirs[5],
                            .op = (enum ctrun_op)theirs[6]};
    char a[CT_CALL_TEXT_MAX];
    char b[CT_CALL_TEXT_MAX];
    struct ct_reader in;

    ct_reader_init(&in, theirs, HEADER_BYTES);
    if (ct_read_u32(&in) != HEADER_MAGIC)
        return ct_fail(err, CTRUN_E_PROTOCOL, "rank %d: not a header of ours", peer);
    (void)ct_read_u32(&in);
    other.peer = (int)ct_read_u32(&in);
    (void)ct_read_u32(&in);
    other.number = ct_read_u64(&in);
    other.count = ct_read_u64(&in);
    ct_call_format(a, call);
    ct_call_format(b, &other);
    return ct_fail(
        err, CTRUN_E_MISMATCH,
        "rank %d calls %s (collective %llu), rank %d calls %s (collective %llu)", me, a,
        (unsigned long long)call->number, peer, b, (unsigned long long)other.number);
}

/* Names the members whose message is not there yet. */
static int fail_swap_timeout(const struct ct_host_tcp *tcp, const struct ct_team *team,
                             const struct ct_call *call, size_t total,
                             struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    char names[400] = "";
    size_t used = 0;

    for (int i = 0; i < team->size; i++) {
        char who[CT_PEER_TEXT_MAX];
        int n;
        if (i == team->me || tcp->swaps[team->members[i]].got == total)
            continue;
        ct_peer_format(who, &tcp->mesh->peers[team->members[i]]);
        n = ct_format(names + used, sizeof names - used, "%s%s", used ? ", " : "", who);
        if (n < 0)
            break;
        used += (size_t)n;
    }
    ct_call_format(text, call);
    return ct_fail(err, CTRUN_E_TIMEOUT, "%s: no answer in time from: %s", text, names);
}

/* One round over all peers. */
static int swap_some(struct ct_host_tcp *tcp, const struct ct_team *team,
                     const struct ct_call *call, size_t total, bool *moved,
                     bool *is_done, struct ctrun_error *err)
{
    const unsigned char *own = tcp->swaps[tcp->mesh->me].bytes;

    *moved = false;
    *is_done = true;
    for (int i = 0; i < team->size; i++) {
        int member = team->members[i];
        struct swap *swap = &tcp->swaps[member];
        enum moved out, in;
        if (i == team->me)
            continue;
        out = push(tcp->mesh->data[member], own, total, &swap->sent);
        in = pull(tcp->mesh->data[member], swap->bytes, total, &swap->got);
        if (in == MOVED_SOME && swap->got >= HEADER_BYTES &&
            memcmp(swap->bytes, own, HEADER_BYTES) != 0) {
            int rc = ct_mesh_check(tcp->mesh, 0,
                                   err); /* it may have failed, and told us why */
            return rc < 0 ? rc : fail_mismatch(tcp, member, swap->bytes, call, err);
        }
        if (out == MOVED_BROKEN || in == MOVED_BROKEN)
            return fail_broken(tcp, member, call, err);
        *moved = *moved || out == MOVED_SOME || in == MOVED_SOME;
        *is_done = *is_done && swap->sent == total && swap->got == total;
    }
    return 0;
}

static int collect_swaps(struct ct_host_tcp *tcp, const struct ct_team *team,
                         size_t total)
{
    int n = 0;

    for (int i = 0; i < team->size; i++) {
        const struct swap *swap = &tcp->swaps[team->members[i]];
        short events = (short)((swap->sent < total ? POLLOUT : 0) |
                               (swap->got < total ? POLLIN : 0));
        if (i != team->me && events)
            tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[team->members[i]],
                                              .events = events};
    }
    return n;
}

/* Sends header and `bytes` of data to all, receives theirs into swaps. */
static int swap_all(struct ct_host_tcp *tcp, const struct ct_team *team,
                    const struct ct_call *call, const void *data, size_t bytes,
                    struct ctrun_error *err)
{
    struct swap *own = &tcp->swaps[tcp->mesh->me];
    size_t total = HEADER_BYTES + bytes;
    bool moved, is_done;
    int quiet = 0;
    int bad = 0;
    int rc;

    write_header(own->bytes, call, false);
    if (bytes)
        memcpy(own->bytes + HEADER_BYTES, data, bytes);
    for (int i = 0; i < team->size; i++)
        tcp->swaps[team->members[i]].sent = tcp->swaps[team->members[i]].got = 0;
    for (;;) {
        rc = swap_some(tcp, team, call, total, &moved, &is_done, bad < 0 ? NULL : err);
        if (rc == 0 && is_done)
            return 0;
        if (rc < 0)
            return bad < 0 ? bad : rc;
        quiet = moved ? 0 : quiet + 1;
        if (quiet <= tcp->spins)
            continue;
        if (bad < 0)
            return bad; /* nothing more has come since */
        if ((bad = idle(tcp, collect_swaps(tcp, team, total), call, err)) == 0 &&
            ct_now_ms() >= call->deadline_ms)
            return fail_swap_timeout(tcp, team, call, total, err);
    }
}

static void reduce_swaps(struct ct_host_tcp *tcp, const struct ct_team *team,
                         const struct ct_call *call)
{
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};

    for (int i = 0; i < team->size; i++)
        tcp->sources[i] = tcp->swaps[team->members[i]].bytes + HEADER_BYTES;
    ct_reduce(&how, &call->out, 1, tcp->sources, team->size, call->count);
}

/* ---- Streams: from one neighbour, to the other ------------------------------------------ */

/* What goes in and out at the same time; advance() moves a block each way. */
struct stream {
    struct ct_host_tcp *tcp;
    const struct ct_call *call;
    int from, to; /* members */
    bool (*is_done)(const struct stream *stream);
    /* These two say which system call they made did something. */
    enum moved (*send_some)(struct stream *stream);
    enum moved (*recv_some)(struct stream *stream);
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
        enum moved out = stream->may_send(stream) ? stream->send_some(stream)
                                                  : MOVED_NOTHING;
        enum moved in = stream->may_recv(stream) ? stream->recv_some(stream)
                                                 : MOVED_NOTHING;
        if (out == MOVED_BROKEN || in == MOVED_BROKEN)
            return bad < 0 ? bad
                           : fail_broken(tcp,
                                         in == MOVED_BROKEN ? stream->from : stream->to,
                                         stream->call, err);
        quiet = out == MOVED_SOME || in == MOVED_SOME ? 0 : quiet + 1;
        if (quiet <= tcp->spins)
            continue;
        if (bad < 0)
            return bad; /* nothing more has come since */
        if ((bad = idle(tcp, collect_stream(stream), stream->call, err)) == 0 &&
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

static enum moved ring_send_some(struct stream *stream)
{
    struct ring *ring = (void *)stream;
    size_t offset = ring->offsets[ring_slice(ring, ring->send_step)];
    enum moved moved = push(stream->tcp->mesh->data[stream->to], ring->base + offset,
                            ring_ready(ring), &ring->send_at);

    ring_settle(ring);
    return moved;
}

static enum moved ring_recv_reduced(struct ring *ring, unsigned char *dst, size_t left)
{
    struct ct_host_tcp *tcp = ring->stream.tcp;
    size_t block = smaller(left, BLOCK_BYTES);
    struct ct_reduction how = ring->how;
    const void *src[2] = {tcp->scratch, dst};
    void *to = dst;
    enum moved moved = pull(tcp->mesh->data[ring->stream.from], tcp->scratch, block,
                            &ring->in_scratch);

    if (ring->in_scratch == block) {
        how.divisor = ring->recv_step == ring->reduce_steps - 1 ? ring->divisor : 1;
        ct_reduce(&how, &to, 1, src, 2, block / ctrun_dtype_size(how.dtype));
        ring->recv_at += block;
        ring->in_scratch = 0;
    }
    return moved;
}

static enum moved ring_recv_some(struct stream *stream)
{
    struct ring *ring = (void *)stream;
    int slice = ring_slice(ring, ring->recv_step + 1);
    unsigned char *dst = ring->base + ring->offsets[slice];
    size_t bytes = ring_slice_bytes(ring, slice);
    enum moved moved;

    if (ring->recv_step < ring->reduce_steps)
        moved = ring_recv_reduced(ring, dst + ring->recv_at, bytes - ring->recv_at);
    else
        moved = pull(stream->tcp->mesh->data[stream->from], dst, bytes, &ring->recv_at);
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

static int ring_all_reduce(struct ct_host_tcp *tcp, const struct ct_team *team,
                           const struct ct_call *call, struct ctrun_error *err)
{
    size_t element = ctrun_dtype_size(call->dtype);
    size_t each = call->count / (size_t)team->size;
    size_t rest = call->count % (size_t)team->size;

    for (size_t i = 0; i <= (size_t)team->size; i++)
        tcp->offsets[i] = (each * i + smaller(i, rest)) * element;
    return ring_run(tcp, team, call, team->size - 1, err);
}

static int ring_all_gather(struct ct_host_tcp *tcp, const struct ct_team *team,
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

static enum moved chain_send_some(struct stream *stream)
{
    struct chain *chain = (void *)stream;

    return push(stream->tcp->mesh->data[stream->to], chain->data,
                chain->is_first ? chain->bytes : chain->got, &chain->sent);
}

static enum moved chain_recv_some(struct stream *stream)
{
    struct chain *chain = (void *)stream;

    return pull(stream->tcp->mesh->data[stream->from], chain->data, chain->bytes,
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

static int chain_broadcast(struct ct_host_tcp *tcp, const struct ct_team *team,
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

/* ---- Calls ------------------------------------------------------------------------------ */

/* send and recv move `bytes` at data between the two of them. */
static int move(struct ct_host_tcp *tcp, const struct ct_call *call, void *data,
                size_t bytes, struct ctrun_error *err)
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

static int run_p2p(struct ct_host_tcp *tcp, const struct ct_call *call,
                   struct ctrun_error *err)
{
    unsigned char own[HEADER_BYTES];
    unsigned char header[HEADER_BYTES];
    int rc;

    write_header(own, call, true);
    memcpy(header, own, sizeof header);
    if ((rc = move(tcp, call, header, sizeof header, err)) < 0)
        return rc;
    if (memcmp(header, own, sizeof header) != 0)
        return fail_mismatch(tcp, call->peer, header, call, err);
    return move(tcp, call, call->out, call->bytes, err);
}

/* The data came with the headers. */
static void finish_small(struct ct_host_tcp *tcp, const struct ct_team *team,
                         const struct ct_call *call)
{
    if (call->kind == CT_CALL_ALL_REDUCE)
        reduce_swaps(tcp, team, call);
    if (call->kind == CT_CALL_BROADCAST && call->peer != team->me && call->bytes)
        memcpy(call->out, tcp->swaps[team->members[call->peer]].bytes + HEADER_BYTES,
               call->bytes);
    if (call->kind == CT_CALL_ALL_GATHER && call->bytes)
        for (int i = 0; i < team->size; i++)
            memcpy((unsigned char *)call->out + (size_t)i * call->bytes,
                   tcp->swaps[team->members[i]].bytes + HEADER_BYTES, call->bytes);
}

int ct_host_tcp_run(struct ct_host_tcp *tcp, const struct ct_team *team,
                    const struct ct_call *call, struct ctrun_error *err)
{
    bool is_small = call->bytes <= CT_SWAP_BYTES;
    unsigned char *own;
    int rc;

    if (call->kind == CT_CALL_SEND || call->kind == CT_CALL_RECV)
        return run_p2p(tcp, call, err);
    rc = swap_all(tcp, team, call, call->in, is_small ? call->bytes : 0, err);
    if (rc < 0)
        return rc;
    if (is_small) {
        finish_small(tcp, team, call);
        return 0;
    }
    if (call->kind == CT_CALL_ALL_REDUCE)
        return ring_all_reduce(tcp, team, call, err);
    if (call->kind == CT_CALL_BROADCAST)
        return chain_broadcast(tcp, team, call, err);
    own = (unsigned char *)call->out + (size_t)team->me * call->bytes;
    if (own != call->in)
        memcpy(own, call->in, call->bytes);
    return ring_all_gather(tcp, team, call, err);
}
