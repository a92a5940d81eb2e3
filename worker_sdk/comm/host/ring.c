/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/ring.h"

#include <errno.h>
#include <string.h>

/* One ring for each pair and direction, in shared memory. `written` is stored by the sender alone
 * and `taken` by the receiver alone; both only grow, so that their difference is the number of
 * bytes in the ring, and neither side needs a lock. The bytes are copied before the counter is
 * stored (sequentially consistent), so a side that sees the counter sees the bytes. */
static struct ct_ring *ring_between(const struct ct_segment *segment, int from, int to)
{
    return &segment->rings[from * segment->size + to];
}

bool ct_ring_has_room(const struct ct_segment *segment, int member)
{
    const struct ct_ring *ring = ring_between(segment, segment->me, member);

    return atomic_load(&ring->taken) + CT_RING_BYTES > atomic_load(&ring->written);
}

static bool is_filled(const struct ct_segment *segment, int member)
{
    const struct ct_ring *ring = ring_between(segment, member, segment->me);

    return atomic_load(&ring->written) > atomic_load(&ring->taken);
}

bool ct_ring_has_bytes(const struct ct_segment *segment, int member)
{
    return ct_buf_length(&segment->inboxes[member]) || is_filled(segment, member);
}

/* Whether bytes have arrived from that member and its inbox has room. The inbox is limited to
 * CT_INBOX_BYTES: a peer that sends without end fills its ring and waits before it fills our
 * memory. */
static bool has_mail_from(const struct ct_segment *segment, int member)
{
    return member != segment->me && is_filled(segment, member) &&
           ct_buf_length(&segment->inboxes[member]) + CT_RING_BYTES <= CT_INBOX_BYTES;
}

bool ct_ring_has_mail(const struct ct_segment *segment)
{
    for (int i = 0; i < segment->size; i++)
        if (has_mail_from(segment, i))
            return true;
    return false;
}

/* Bytes that can be moved at once: limited by the end of the ring, the data, and `available`. */
static size_t ring_piece(uint64_t position, uint64_t available, size_t left)
{
    size_t piece = CT_RING_BYTES - (size_t)(position % CT_RING_BYTES);

    piece = piece < available ? piece : (size_t)available;
    return piece < left ? piece : left;
}

/* Moves all bytes in the ring from `member` to its inbox. 0 or -ENOMEM. */
static int take_all(struct ct_segment *segment, int member)
{
    struct ct_ring *ring = ring_between(segment, member, segment->me);
    uint64_t at = atomic_load(&ring->taken);
    uint64_t end = atomic_load(
        &ring->written); /* read once: a busy sender must not keep us here */

    while (at < end) {
        size_t piece = ring_piece(at, end - at, CT_RING_BYTES);
        if (ct_buf_append(&segment->inboxes[member], ring->data + at % CT_RING_BYTES,
                          piece) < 0)
            return -ENOMEM;
        atomic_store(&ring->taken, at += piece);
    }
    ct_segment_wake(segment, member);
    return 0;
}

int ct_ring_take_mail(struct ct_segment *segment)
{
    int taken = 0;

    for (int i = 0; i < segment->size; i++) {
        if (!has_mail_from(segment, i))
            continue;
        if (take_all(segment, i) < 0)
            return -ENOMEM;
        taken = 1;
    }
    return taken;
}

size_t ct_ring_put(struct ct_segment *segment, int member, const void *data,
                   size_t bytes)
{
    struct ct_ring *ring = ring_between(segment, segment->me, member);
    size_t done = 0;

    while (done < bytes) {
        uint64_t at = atomic_load(&ring->written);
        size_t piece = ring_piece(at, CT_RING_BYTES - (at - atomic_load(&ring->taken)),
                                  bytes - done);
        if (piece == 0)
            break;
        /* Before `written` is stored: the receiver may read right after that. */
        memcpy(ring->data + at % CT_RING_BYTES, (const unsigned char *)data + done,
               piece);
        atomic_store(&ring->written, at + piece);
        ct_segment_wake(segment, member);
        done += piece;
    }
    return done;
}

size_t ct_ring_take(struct ct_segment *segment, int member, void *data, size_t bytes)
{
    struct ct_ring *ring = ring_between(segment, member, segment->me);
    struct ct_buf *inbox = &segment->inboxes[member];
    size_t done = ct_buf_length(inbox) < bytes ? ct_buf_length(inbox) : bytes;

    if (done) { /* the inbox came first */
        memcpy(data, ct_buf_data(inbox), done);
        ct_buf_consume(inbox, done);
    }
    while (done < bytes) {
        uint64_t at = atomic_load(&ring->taken);
        size_t piece = ring_piece(at, atomic_load(&ring->written) - at, bytes - done);
        if (piece == 0)
            break;
        /* Before `taken` is stored: the sender may overwrite right after that. */
        memcpy((unsigned char *)data + done, ring->data + at % CT_RING_BYTES, piece);
        atomic_store(&ring->taken, at + piece);
        ct_segment_wake(segment, member);
        done += piece;
    }
    return done;
}
