/* SPDX-License-Identifier: Apache-2.0 */
/* The first half of a large all-reduce: each member receives all parts of its own slice and reduces
 * them in rank order, as small calls and shared memory do. So the bits of a result depend only on
 * the data and the size of the group. Halves are added in f32. Each member sends (size - 1) / size
 * of its data, as around a ring.
 *
 * A slice is reduced block by block; data of a member that is ahead wait in the buffers of its
 * socket. */
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/host_tcp_private.h"
#include "worker_sdk/comm/host/reduce.h"

struct scatter {
    struct ct_host_tcp *tcp;
    const struct ct_call *call;
    const unsigned char *in;
    unsigned char *out; /* of our slice */
    size_t block;       /* bytes of our slice that are reduced at once */
    size_t reduced;     /* bytes of our slice that are done */
    struct ctrun_error *err;
};

/* Slices of equal length; the first ones may be one element longer. In a reduce-scatter the slices
 * are the members' parts. */
void ct_host_tcp_cut_slices(struct ct_host_tcp *tcp, const struct ct_call *call)
{
    size_t element = ctrun_dtype_size(call->dtype);
    size_t size = (size_t)tcp->mesh->size;
    bool has_parts = call->kind == CT_CALL_REDUCE_SCATTER;
    size_t each = has_parts ? call->count : call->count / size;
    size_t rest = has_parts ? 0 : call->count % size;

    for (size_t i = 0; i <= size; i++)
        tcp->offsets[i] = (each * i + (i < rest ? i : rest)) * element;
}

static size_t slice_bytes(const struct scatter *scatter, int member)
{
    return scatter->tcp->offsets[member + 1] - scatter->tcp->offsets[member];
}

static size_t block_bytes(const struct scatter *scatter)
{
    size_t left = slice_bytes(scatter, scatter->tcp->mesh->me) - scatter->reduced;

    return left < scatter->block ? left : scatter->block;
}

/* The buffer for a block of that member. Ours stays unused: our own part is read from the caller's
 * memory. */
static unsigned char *part_of(const struct scatter *scatter, int member)
{
    return scatter->tcp->scratch + (size_t)member * scatter->block;
}

/* The events that `member` still needs: POLLIN, POLLOUT. */
static short events_of(const struct scatter *scatter, int member)
{
    const struct ct_swap *swap = &scatter->tcp->swaps[member];

    if (member == scatter->tcp->mesh->me)
        return 0;
    return (short)((swap->sent < slice_bytes(scatter, member) ? POLLOUT : 0) |
                   (swap->got < block_bytes(scatter) ? POLLIN : 0));
}

/* All parts of the block have arrived. `out` may be our part of `in`: the kernels load an element
 * of every source before they store it. Slices of others are only sent, never written, so unsent
 * data stay unchanged. */
static void reduce_block(struct scatter *scatter)
{
    const struct ct_call *call = scatter->call;
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};
    size_t bytes = block_bytes(scatter);
    const void *own = scatter->in + scatter->tcp->offsets[scatter->tcp->mesh->me] +
                      scatter->reduced;
    void *out = scatter->out + scatter->reduced;

    for (int i = 0; i < scatter->tcp->mesh->size; i++) {
        scatter->tcp->sources[i] = i == scatter->tcp->mesh->me ? own
                                                               : part_of(scatter, i);
        scatter->tcp->swaps[i].got = 0;
    }
    ct_reduce(&how, &out, 1, scatter->tcp->sources, scatter->tcp->mesh->size,
              bytes / ctrun_dtype_size(call->dtype));
    scatter->reduced += bytes;
}

/* One round over all members. Returns 0, or why the call failed. */
static int move_some(struct scatter *scatter, bool *moved)
{
    struct ct_host_tcp *tcp = scatter->tcp;
    bool is_full = block_bytes(scatter) > 0; /* else our slice is done, or empty */

    *moved = false;
    for (int i = 0; i < scatter->tcp->mesh->size; i++) {
        struct ct_swap *swap = &tcp->swaps[i];
        enum ct_moved out, in;
        if (i == scatter->tcp->mesh->me)
            continue;
        out = ct_host_tcp_push(tcp->mesh->data[i], scatter->in + tcp->offsets[i],
                               slice_bytes(scatter, i), &swap->sent);
        in = ct_host_tcp_pull(tcp, i, part_of(scatter, i), block_bytes(scatter),
                              &swap->got);
        if (out == CT_MOVED_BROKEN || in == CT_MOVED_BROKEN)
            return ct_host_tcp_fail_broken(tcp, i, scatter->call, scatter->err);
        *moved = *moved || out == CT_MOVED_SOME || in == CT_MOVED_SOME;
        is_full = is_full && swap->got == block_bytes(scatter);
    }
    if (is_full)
        reduce_block(scatter);
    return 0;
}

static bool is_done(const struct scatter *scatter)
{
    for (int i = 0; i < scatter->tcp->mesh->size; i++)
        if (events_of(scatter, i))
            return false;
    return block_bytes(scatter) == 0;
}

static int fail_timeout(const struct scatter *scatter)
{
    const int member = scatter->tcp->mesh->awaited;

    return ct_host_tcp_fail_late(scatter->tcp, events_of(scatter, member) & POLLIN,
                                 scatter->call, scatter->err);
}

/* Goes backwards, so that the lowest unfinished member is the one that is named. */
static int idle(struct scatter *scatter)
{
    struct ct_host_tcp *tcp = scatter->tcp;
    int n = 0;

    for (int i = scatter->tcp->mesh->size - 1; i >= 0; i--)
        if (events_of(scatter, i)) {
            tcp->polls[n++] = (struct pollfd){.fd = tcp->mesh->data[i],
                                              .events = events_of(scatter, i)};
            tcp->mesh->awaited = i;
        }
    return ct_host_tcp_idle(tcp, n, scatter->call, CT_SLICE_MS, scatter->err);
}

static size_t block_for(int size, size_t element)
{
    return CT_SCRATCH_BYTES(size) / (size_t)size / element * element;
}

int ct_host_tcp_reduce_scatter(struct ct_host_tcp *tcp, const struct ct_call *call,
                               void *out, struct ctrun_error *err)
{
    struct scatter scatter = {
        .tcp = tcp,
        .call = call,
        .in = call->in,
        .out = out,
        .block = block_for(tcp->mesh->size, ctrun_dtype_size(call->dtype)),
        .err = err};
    int quiet = 0;
    int bad = 0;

    for (int i = 0; i < tcp->mesh->size; i++) {
        tcp->swaps[i].sent = tcp->swaps[i].ahead;
        tcp->swaps[i].got = 0;
    }
    while (!is_done(&scatter)) {
        bool moved;
        int rc;
        if (bad < 0)
            scatter.err = NULL; /* the first reason stays */
        if ((rc = move_some(&scatter, &moved)) < 0)
            return bad < 0 ? bad : rc;
        quiet = moved ? 0 : quiet + 1;
        if (quiet <= tcp->spins || is_done(&scatter))
            continue;
        if (bad < 0)
            return bad; /* no data have arrived since */
        if ((bad = idle(&scatter)) == 0 && ct_now_ms() >= call->deadline_ms)
            bad = fail_timeout(&scatter);
    }
    return 0;
}
