/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host_tcp_private.h"

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
    SPINS = 60, /* tries, half a µs each, before poll(): a wake-up costs 30 µs */
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
    tcp->scratch = ct_zalloc(CT_BLOCK_BYTES);
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

static size_t at_most_a_block(size_t bytes)
{
    return bytes < CT_BLOCK_BYTES ? bytes : CT_BLOCK_BYTES;
}

enum ct_moved ct_host_tcp_push(int fd, const void *data, size_t end, size_t *done)
{
    ssize_t n;

    if (*done >= end)
        return CT_MOVED_NOTHING;
    n = send(fd, (const unsigned char *)data + *done, at_most_a_block(end - *done),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? CT_MOVED_NOTHING : CT_MOVED_BROKEN;
    *done += (size_t)n;
    return CT_MOVED_SOME;
}

enum ct_moved ct_host_tcp_pull(int fd, void *data, size_t end, size_t *done)
{
    ssize_t n;

    if (*done >= end)
        return CT_MOVED_NOTHING;
    n = recv(fd, (unsigned char *)data + *done, at_most_a_block(end - *done),
             MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? CT_MOVED_NOTHING : CT_MOVED_BROKEN;
    *done += (size_t)n;
    return n == 0 ? CT_MOVED_BROKEN : CT_MOVED_SOME;
}

int ct_host_tcp_fail_broken(struct ct_host_tcp *tcp, int member,
                            const struct ct_call *call, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    int rc = ct_mesh_explain(tcp->mesh, member, err);

    ct_call_format(text, call);
    return rc == CTRUN_E_PEER_LOST ? ct_wrap(err, "%s", text) : rc;
}

int ct_host_tcp_idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
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

    ct_writer_init(&out, dst, CT_HEADER_BYTES);
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

    ct_reader_init(&in, theirs, CT_HEADER_BYTES);
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
        struct ct_swap *swap = &tcp->swaps[member];
        enum ct_moved out, in;
        if (i == team->me)
            continue;
        out = ct_host_tcp_push(tcp->mesh->data[member], own, total, &swap->sent);
        in = ct_host_tcp_pull(tcp->mesh->data[member], swap->bytes, total, &swap->got);
        if (in == CT_MOVED_SOME && swap->got >= CT_HEADER_BYTES &&
            memcmp(swap->bytes, own, CT_HEADER_BYTES) != 0) {
            int rc = ct_mesh_check(tcp->mesh, 0,
                                   err); /* it may have failed, and told us why */
            return rc < 0 ? rc : fail_mismatch(tcp, member, swap->bytes, call, err);
        }
        if (out == CT_MOVED_BROKEN || in == CT_MOVED_BROKEN)
            return ct_host_tcp_fail_broken(tcp, member, call, err);
        *moved = *moved || out == CT_MOVED_SOME || in == CT_MOVED_SOME;
        *is_done = *is_done && swap->sent == total && swap->got == total;
    }
    return 0;
}

static int collect_swaps(struct ct_host_tcp *tcp, const struct ct_team *team,
                         size_t total)
{
    int n = 0;

    for (int i = 0; i < team->size; i++) {
        const struct ct_swap *swap = &tcp->swaps[team->members[i]];
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
    struct ct_swap *own = &tcp->swaps[tcp->mesh->me];
    size_t total = CT_HEADER_BYTES + bytes;
    bool moved, is_done;
    int quiet = 0;
    int bad = 0;
    int rc;

    write_header(own->bytes, call, false);
    if (bytes)
        memcpy(own->bytes + CT_HEADER_BYTES, data, bytes);
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
        if ((bad = ct_host_tcp_idle(tcp, collect_swaps(tcp, team, total), call, err)) ==
                0 &&
            ct_now_ms() >= call->deadline_ms)
            return fail_swap_timeout(tcp, team, call, total, err);
    }
}

static void reduce_swaps(struct ct_host_tcp *tcp, const struct ct_team *team,
                         const struct ct_call *call)
{
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};

    for (int i = 0; i < team->size; i++)
        tcp->sources[i] = tcp->swaps[team->members[i]].bytes + CT_HEADER_BYTES;
    ct_reduce(&how, &call->out, 1, tcp->sources, team->size, call->count);
}

/* ---- Calls ------------------------------------------------------------------------------ */

static int run_p2p(struct ct_host_tcp *tcp, const struct ct_call *call,
                   struct ctrun_error *err)
{
    unsigned char own[CT_HEADER_BYTES];
    unsigned char header[CT_HEADER_BYTES];
    int rc;

    write_header(own, call, true);
    memcpy(header, own, sizeof header);
    if ((rc = ct_host_tcp_stream_move(tcp, call, header, sizeof header, err)) < 0)
        return rc;
    if (memcmp(header, own, sizeof header) != 0)
        return fail_mismatch(tcp, call->peer, header, call, err);
    return ct_host_tcp_stream_move(tcp, call, call->out, call->bytes, err);
}

/* The data came with the headers. */
static void finish_small(struct ct_host_tcp *tcp, const struct ct_team *team,
                         const struct ct_call *call)
{
    if (call->kind == CT_CALL_ALL_REDUCE)
        reduce_swaps(tcp, team, call);
    if (call->kind == CT_CALL_BROADCAST && call->peer != team->me && call->bytes)
        memcpy(call->out, tcp->swaps[team->members[call->peer]].bytes + CT_HEADER_BYTES,
               call->bytes);
    if (call->kind == CT_CALL_ALL_GATHER && call->bytes)
        for (int i = 0; i < team->size; i++)
            memcpy((unsigned char *)call->out + (size_t)i * call->bytes,
                   tcp->swaps[team->members[i]].bytes + CT_HEADER_BYTES, call->bytes);
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
        return ct_host_tcp_stream_all_reduce(tcp, team, call, err);
    if (call->kind == CT_CALL_BROADCAST)
        return ct_host_tcp_stream_broadcast(tcp, team, call, err);
    own = (unsigned char *)call->out + (size_t)team->me * call->bytes;
    if (own != call->in)
        memcpy(own, call->in, call->bytes);
    return ct_host_tcp_stream_all_gather(tcp, team, call, err);
}
