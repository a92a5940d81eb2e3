/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/ring.h"

#include "worker_sdk/base/str.h"

static struct ct_ring *ring_between(const struct ct_segment *segment, int from, int to)
{
    return &segment->rings[from * segment->size + to];
}

static bool is_peer(const struct ct_segment *segment, const struct ct_wait *wait,
                    int member)
{
    (void)segment;
    return member == wait->peer;
}

static bool has_room(const struct ct_segment *segment, const struct ct_wait *wait)
{
    const struct ct_ring *ring = ring_between(segment, segment->me, wait->peer);

    return atomic_load(&ring->taken) + CT_RING_BYTES > wait->number;
}

static bool has_bytes(const struct ct_segment *segment, const struct ct_wait *wait)
{
    const struct ct_ring *ring = ring_between(segment, wait->peer, segment->me);

    return atomic_load(&ring->written) > wait->number;
}

static bool is_sender_gone(const struct ct_segment *segment, const struct ct_wait *wait,
                           int member)
{
    return member == wait->peer && !has_bytes(segment, wait);
}

/* Bytes that can be moved at once: to the end of the ring, of the data, of what is there. */
static size_t ring_piece(uint64_t position, uint64_t available, size_t left)
{
    size_t piece = CT_RING_BYTES - (size_t)(position % CT_RING_BYTES);

    piece = piece < available ? piece : (size_t)available;
    return piece < left ? piece : left;
}

static int ring_write(struct ct_segment *segment, const struct ct_call *call,
                      const void *data, size_t bytes, struct ctrun_error *err)
{
    struct ct_ring *ring = ring_between(segment, segment->me, call->peer);
    struct ct_wait wait = {.is_met = has_room,
                           .is_awaited = is_peer,
                           .peer = call->peer,
                           .call = call,
                           .deadline_ms = call->deadline_ms};
    const unsigned char *from = data;

    while (bytes) {
        uint64_t at = atomic_load(&ring->written);
        size_t piece;
        int rc;
        wait.number = at;
        if ((rc = ct_segment_wait(segment, &wait, err)) < 0)
            return rc;
        piece = ring_piece(at, CT_RING_BYTES - (at - atomic_load(&ring->taken)), bytes);
        memcpy(ring->data + at % CT_RING_BYTES, from, piece);
        atomic_store(&ring->written, at + piece);
        ct_segment_wake(segment, call->peer);
        from += piece;
        bytes -= piece;
    }
    return 0;
}

static int ring_read(struct ct_segment *segment, const struct ct_call *call, void *data,
                     size_t bytes, struct ctrun_error *err)
{
    struct ct_ring *ring = ring_between(segment, call->peer, segment->me);
    struct ct_wait wait = {.is_met = has_bytes,
                           .is_awaited = is_sender_gone,
                           .peer = call->peer,
                           .call = call,
                           .deadline_ms = call->deadline_ms};
    unsigned char *to = data;

    while (bytes) {
        uint64_t at = atomic_load(&ring->taken);
        size_t piece;
        int rc;
        wait.number = at;
        if ((rc = ct_segment_wait(segment, &wait, err)) < 0)
            return rc;
        piece = ring_piece(at, atomic_load(&ring->written) - at, bytes);
        memcpy(to, ring->data + at % CT_RING_BYTES, piece);
        atomic_store(&ring->taken, at + piece);
        ct_segment_wake(segment, call->peer);
        to += piece;
        bytes -= piece;
    }
    return 0;
}

int ct_ring_send(struct ct_segment *segment, const struct ct_call *call,
                 struct ctrun_error *err)
{
    uint64_t bytes = call->bytes;
    int rc = ring_write(segment, call, &bytes, sizeof bytes, err);

    return rc < 0 ? rc : ring_write(segment, call, call->in, call->bytes, err);
}

int ct_ring_recv(struct ct_segment *segment, const struct ct_call *call,
                 struct ctrun_error *err)
{
    uint64_t bytes;
    int rc = ring_read(segment, call, &bytes, sizeof bytes, err);

    if (rc < 0)
        return rc;
    if (bytes != call->bytes)
        return ct_fail(err, CTRUN_E_MISMATCH,
                       "rank %d sends %llu bytes, rank %d receives %zu",
                       segment->peers[call->peer]->rank, (unsigned long long)bytes,
                       segment->peers[segment->me]->rank, call->bytes);
    return ring_read(segment, call, call->out, call->bytes, err);
}
