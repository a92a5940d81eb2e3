/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/host_tcp_private.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/header.h"
#include "worker_sdk/comm/host/small.h"

enum {
    SPINS = 60, /* attempts, half a µs each, before poll(): a wake-up costs 30 µs */
};

/* Spins only if each member in this network namespace may have a processor; members on other hosts
 * do not compete for ours. */
int ct_host_tcp_create(struct ct_host_tcp **out, struct ct_mesh *mesh,
                       struct ct_watch watch, struct ctrun_error *err)
{
    struct ct_host_tcp *tcp = ct_zalloc(sizeof *tcp);
    size_t size = (size_t)mesh->size;
    cpu_set_t cpus;
    int neighbours = 0;

    if (!tcp)
        return ct_fail(err, -ENOMEM, "open group: out of memory");
    tcp->mesh = mesh;
    tcp->watch = watch;
    tcp->swaps = ct_zalloc_array(size, sizeof *tcp->swaps);
    tcp->polls = ct_zalloc_array(2 * size + 2, sizeof *tcp->polls);
    tcp->sources = ct_zalloc_array(size, sizeof *tcp->sources);
    tcp->offsets = ct_zalloc_array(size + 1, sizeof *tcp->offsets);
    tcp->inboxes = ct_zalloc_array(size, sizeof *tcp->inboxes);
    tcp->scratch = ct_zalloc(CT_SCRATCH_BYTES(size));
    if (!tcp->swaps || !tcp->polls || !tcp->sources || !tcp->offsets || !tcp->inboxes ||
        !tcp->scratch) {
        ct_host_tcp_destroy(tcp);
        return ct_fail(err, -ENOMEM, "open group: out of memory for %zu members", size);
    }
    for (int i = 0; i < mesh->size; i++)
        ct_buf_init(&tcp->inboxes[i], CT_INBOX_BYTES);
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
    for (int i = 0; tcp->inboxes && i < tcp->mesh->size; i++)
        ct_buf_deinit(&tcp->inboxes[i]);
    free(tcp->inboxes);
    free(tcp->swaps);
    free(tcp->polls);
    free(tcp->sources);
    free(tcp->offsets);
    free(tcp->scratch);
    free(tcp);
}

/* ---- Headers and small data, between every two members ------------------------------------ */

/* Names the members whose message has not arrived. No member needs to be asked whom it waits for:
 * each sends at the start of its call, so these have not begun the call. */
static int fail_swap_timeout(const struct ct_host_tcp *tcp, const struct ct_call *call,
                             size_t total, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    char names[400] = "";
    size_t used = 0;

    for (int i = 0; i < tcp->mesh->size; i++) {
        char who[CT_PEER_TEXT_MAX];
        int n;
        if (i == tcp->mesh->me || tcp->swaps[i].got == total)
            continue;
        ct_peer_format(who, &tcp->mesh->peers[i]);
        n = ct_format(names + used, sizeof names - used, "%s%s", used ? ", " : "", who);
        if (n < 0)
            break;
        used += (size_t)n;
    }
    ct_call_format(text, call);
    return ct_fail(err, CTRUN_E_TIMEOUT, "%s: no answer in time from: %s", text, names);
}

/* Sends its slice of large data to member i right behind our header. Member i compares the headers
 * before it uses the slice, and neither side waits for the other's header first. */
static enum ct_moved send_ahead(struct ct_host_tcp *tcp, int i, enum ct_moved before)
{
    const enum ct_moved moved = ct_host_tcp_push(
        tcp->mesh->data[i], tcp->ahead + tcp->offsets[i],
        tcp->offsets[i + 1] - tcp->offsets[i], &tcp->swaps[i].ahead);

    return moved == CT_MOVED_NOTHING ? before : moved;
}

/* One round over all peers. */
static int swap_some(struct ct_host_tcp *tcp, const struct ct_call *call, size_t total,
                     bool *moved, bool *is_done, struct ctrun_error *err)
{
    const unsigned char *own = tcp->swaps[tcp->mesh->me].bytes;

    *moved = false;
    *is_done = true;
    for (int i = 0; i < tcp->mesh->size; i++) {
        struct ct_swap *swap = &tcp->swaps[i];
        enum ct_moved out, in;
        if (i == tcp->mesh->me)
            continue;
        out = ct_host_tcp_push(tcp->mesh->data[i], own, total, &swap->sent);
        if (tcp->ahead && swap->sent == total && out != CT_MOVED_BROKEN)
            out = send_ahead(tcp, i, out);
        in = ct_host_tcp_pull(tcp, i, swap->bytes, total, &swap->got);
        if (in == CT_MOVED_SOME && swap->got >= CT_HEADER_BYTES &&
            memcmp(swap->bytes, own, CT_HEADER_BYTES) != 0) {
            int rc = ct_mesh_check(tcp->mesh, 0,
                                   err); /* the peer may have failed and reported why */
            return rc < 0 ? rc
                          : ct_header_fail(call, tcp->mesh->peers[tcp->mesh->me].rank,
                                           swap->bytes, tcp->mesh->peers[i].rank, err);
        }
        if (out == CT_MOVED_BROKEN || in == CT_MOVED_BROKEN)
            return ct_host_tcp_fail_broken(tcp, i, call, err);
        *moved = *moved || out == CT_MOVED_SOME || in == CT_MOVED_SOME;
        *is_done = *is_done && swap->sent == total && swap->got == total;
    }
    return 0;
}

/* Also sets mesh->awaited to one of the unfinished members, for peers that ask whom we wait for. */
static int collect_swaps(struct ct_host_tcp *tcp, size_t total)
{
    int n = 0;

    for (int i = 0; i < tcp->mesh->size; i++) {
        const struct ct_swap *swap = &tcp->swaps[i];
        short events = (short)((swap->sent < total ? POLLOUT : 0) |
                               (swap->got < total ? POLLIN : 0));
        if (i == tcp->mesh->me || !events)
            continue;
        tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[i], .events = events};
        tcp->mesh->awaited = i;
    }
    return n;
}

/* Sends header and `bytes` of data to all members, receives theirs into swaps.
 *
 * After a failure that a check found, or the deadline (`bad`), one more round over the sockets
 * decides: a peer may have sent all that we need and then failed in its next call, or this process
 * was stopped while the data came. */
static int swap_all(struct ct_host_tcp *tcp, const struct ct_call *call,
                    const void *data, size_t bytes, struct ctrun_error *err)
{
    struct ct_swap *own = &tcp->swaps[tcp->mesh->me];
    size_t total = CT_HEADER_BYTES + bytes;
    bool moved, is_done;
    int quiet = 0;
    int bad = 0;
    int rc;

    ct_header_write(own->bytes, call);
    if (bytes && data) /* in a broadcast only the root has data */
        memcpy(own->bytes + CT_HEADER_BYTES, data, bytes);
    for (int i = 0; i < tcp->mesh->size; i++)
        tcp->swaps[i].sent = tcp->swaps[i].got = tcp->swaps[i].ahead = 0;
    for (;;) {
        rc = swap_some(tcp, call, total, &moved, &is_done, bad < 0 ? NULL : err);
        if (rc == 0 && is_done)
            return 0;
        if (rc < 0)
            return bad < 0 ? bad : rc;
        quiet = moved ? 0 : quiet + 1;
        if (quiet <= tcp->spins)
            continue;
        if (bad < 0)
            return bad; /* no data have arrived since */
        if ((bad = ct_host_tcp_idle(tcp, collect_swaps(tcp, total), call, CT_SLICE_MS,
                                    err)) == 0 &&
            ct_now_ms() >= call->deadline_ms)
            bad = fail_swap_timeout(tcp, call, total, err);
    }
}

/* ---- Calls ------------------------------------------------------------------------------ */

/* The data came with the headers. */
static void finish_small(struct ct_host_tcp *tcp, const struct ct_call *call)
{
    for (int i = 0; i < tcp->mesh->size; i++)
        tcp->sources[i] = tcp->swaps[i].bytes + CT_HEADER_BYTES;
    ct_small_finish(call, tcp->mesh->size, tcp->mesh->me, tcp->sources);
}

/* All headers have arrived and are equal: a stream that follows needs no header of its own. */
static int run_large(struct ct_host_tcp *tcp, const struct ct_call *call,
                     struct ctrun_error *err)
{
    unsigned char *own = (unsigned char *)call->out +
                         (size_t)tcp->mesh->me * call->bytes;

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE: return ct_host_tcp_stream_all_reduce(tcp, call, err);
    case CT_CALL_REDUCE: return ct_host_tcp_stream_reduce(tcp, call, err);
    case CT_CALL_REDUCE_SCATTER:
        return ct_host_tcp_reduce_scatter(tcp, call, call->out, err);
    case CT_CALL_BROADCAST:
        if (call->peer == tcp->mesh->me && call->in != call->out)
            memcpy(call->out, call->in, call->bytes);
        return ct_host_tcp_stream_broadcast(tcp, call, err);
    default: break; /* ALL_GATHER: other kinds have no data here */
    }
    if (own != call->in)
        memcpy(own, call->in, call->bytes);
    return ct_host_tcp_stream_all_gather(tcp, call, err);
}

int ct_host_tcp_run(struct ct_host_tcp *tcp, const struct ct_call *call,
                    struct ctrun_error *err)
{
    size_t bytes = ct_call_in_bytes(call, tcp->mesh->size);
    bool is_small = bytes <= CT_SWAP_BYTES;
    int rc;

    /* Only slices of a reduction are cut and sent before all members have agreed: they are cut as
     * our own call says, and a member whose call differs compares the headers before it uses any
     * slice. */
    tcp->ahead = ct_call_is_reduction(call) && !is_small ? call->in : NULL;
    if (tcp->ahead)
        ct_host_tcp_cut_slices(tcp, call);
    if ((rc = swap_all(tcp, call, call->in, is_small ? bytes : 0, err)) < 0)
        return rc;
    if (!is_small)
        return run_large(tcp, call, err);
    finish_small(tcp, call);
    return 0;
}
