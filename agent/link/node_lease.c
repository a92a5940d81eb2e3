/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/link/node_lease.h"

#include "worker_sdk/wire/message.h"

/* The rest of the lease after this, a fifth, is for ending the workers. */
static uint64_t patience_ms(const struct node_lease *lease)
{
    return lease->lost_after_ms - lease->lost_after_ms / 5;
}

bool node_lease_welcome(struct node_lease *lease, const struct node_lease_terms *terms,
                        uint64_t greeted_ms, enum node_lease_workers workers)
{
    if (terms->term < lease->term)
        return false;
    lease->term = terms->term;
    lease->lost_after_ms = terms->lost_after_ms;
    lease->heartbeat_ms = terms->heartbeat_ms ? terms->heartbeat_ms
                                              : NODE_LEASE_HEARTBEAT_MS;
    lease->greeted_ms = lease->confirmed_ms = greeted_ms;
    lease->acked_ms = 0;
    /* The welcome of an elected server proves nothing: it may have lost its lease. It must
     * acknowledge a heartbeat before the last tenth of the lease, which is for ending the
     * workers. */
    if (!lease->is_replaceable || workers == NODE_LEASE_NO_WORKERS)
        lease->proven_ms = greeted_ms;
    else if (workers == NODE_LEASE_RUNNING)
        lease->confirmed_ms = lease->proven_ms + lease->lost_after_ms / 20;
    return true;
}

uint64_t node_lease_beat(struct node_lease *lease, uint64_t now_ms)
{
    lease->sequence++;
    lease->sent_ms[lease->sequence % NODE_LEASE_SLOTS] = now_ms;
    return lease->sequence;
}

bool node_lease_ack(struct node_lease *lease, uint64_t sequence, uint64_t now_ms)
{
    uint64_t sent_ms;

    if (sequence == 0 || sequence > lease->sequence ||
        lease->sequence - sequence >= NODE_LEASE_SLOTS)
        return false; /* not one of ours, or too old to tell when it was sent */
    /* The next server relies on the deadline: an acknowledgement after it does not extend the
     * workers' lease. */
    if (lease->is_replaceable && node_lease_is_over(lease, now_ms))
        return false;
    sent_ms = lease->sent_ms[sequence % NODE_LEASE_SLOTS];
    if (sent_ms > lease->acked_ms)
        lease->acked_ms = sent_ms;
    if (lease->acked_ms > lease->proven_ms)
        lease->proven_ms = lease->acked_ms;
    if (lease->proven_ms > lease->confirmed_ms)
        lease->confirmed_ms = lease->proven_ms;
    return true;
}

uint64_t node_lease_deadline_ms(const struct node_lease *lease)
{
    return lease->proven_ms + lease->lost_after_ms -
           lease->lost_after_ms / NODE_LEASE_CLOCK_ERROR;
}

bool node_lease_is_over(const struct node_lease *lease, uint64_t now_ms)
{
    return lease->lost_after_ms > 0 && now_ms >= node_lease_deadline_ms(lease);
}

bool node_lease_is_fresh(const struct node_lease *lease, uint64_t now_ms)
{
    return lease->lost_after_ms == 0 ||
           (lease->acked_ms > 0 && now_ms < lease->acked_ms + patience_ms(lease));
}

uint64_t node_lease_resume_end_ms(const struct node_lease *lease)
{
    return lease->proven_ms + patience_ms(lease);
}

/* ---- Silence ---------------------------------------------------------------------------- */

static bool is_silent(const struct node_lease *lease, uint64_t now_ms)
{
    return now_ms >= lease->confirmed_ms + patience_ms(lease);
}

uint64_t node_lease_next_look_ms(struct node_lease *lease)
{
    return lease->look_ms = lease->confirmed_ms + patience_ms(lease);
}

bool node_lease_look(struct node_lease *lease, uint64_t now_ms)
{
    const uint64_t deadline_ms = node_lease_deadline_ms(lease);
    uint64_t answer_ms = now_ms + lease->heartbeat_ms;

    if (lease->is_replaceable && deadline_ms < answer_ms)
        answer_ms = deadline_ms;
    if (now_ms > lease->look_ms + lease->heartbeat_ms &&
        !(lease->is_replaceable && node_lease_is_over(lease, now_ms)))
        lease->confirmed_ms = answer_ms - patience_ms(lease);
    return is_silent(lease, now_ms);
}

bool node_lease_has_patience(const struct node_lease *lease, uint64_t now_ms)
{
    const uint64_t answered_ms = lease->acked_ms > lease->greeted_ms
                                     ? lease->acked_ms
                                     : lease->greeted_ms;

    return !lease->is_replaceable &&
           now_ms - answered_ms < lease->lost_after_ms * CT_PAUSE_LEASES / 5 * 4;
}

/* The kernel's acknowledgement of the last heartbeat counts as the server's: no other server can
 * start a world meanwhile, and this server reads its messages before it counts a node as lost. */
bool node_lease_wait(struct node_lease *lease, uint64_t now_ms)
{
    if (!lease->is_replaceable)
        lease->proven_ms = lease->confirmed_ms =
            lease->sent_ms[lease->sequence % NODE_LEASE_SLOTS];
    return is_silent(lease, now_ms);
}
