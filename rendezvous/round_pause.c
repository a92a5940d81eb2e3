/* SPDX-License-Identifier: Apache-2.0 */
/* Who has been heard of lately, and what the silence of the others means.
 *
 *     heard ──4/5 of a lease──> PEER sent ──1/5──> unsure ──SILENT──> lost
 *       ▲                          ▲                  │ PAUSED
 *       └───── any message ────────┴──────────────────┘ (until pause_ms is over)
 *
 * Only a direct member can be unsure: its kernel acknowledges to ours, nobody in its place.
 * Others are lost when their lease is over. */
#include "rendezvous/round_private.h"

static bool may_pause(const struct round *round)
{
    return round->settings.pause_ms > round->settings.lost_after_ms;
}

void round_init_leases(struct round *round)
{
    const uint64_t lost_after_ms = round->settings.lost_after_ms;

    lease_queue_init(&round->leases, lost_after_ms);
    lease_queue_init(&round->direct_leases, lost_after_ms - lost_after_ms / 5);
    lease_queue_init(&round->probes, lost_after_ms / 5);
    ct_list_init(&round->unsure);
}

void round_renew(struct round *round, struct member *member, uint64_t now_ms)
{
    member->heard_ms = now_ms;
    member->is_paused = false;
    lease_renew(member->is_direct ? &round->direct_leases : &round->leases,
                &member->lease, now_ms);
}

void round_take_direct(struct round *round, struct member *member, uint64_t now_ms)
{
    member->is_direct = may_pause(round);
    round_renew(round, member, now_ms); /* its message has brought us here */
}

static void probe(struct round *round, struct member *member, uint64_t now_ms)
{
    if (!member->is_away) { /* else there is nothing to send it over */
        member->probed_ms = now_ms;
        round_push_to(round, ROUND_SEND_PEER, member);
    }
    lease_renew(&round->probes, &member->lease, now_ms);
}

void round_take_paused(struct round *round, struct member *member, uint64_t now_ms)
{
    if (now_ms >= round_deadline(member->heard_ms, round->settings.pause_ms)) {
        round_expire(round, member, now_ms);
        return;
    }
    member->is_paused = true;
    probe(round, member, now_ms);
    round_start_if_complete(round, now_ms);
}

static struct member *member_of(struct lease *lease)
{
    return ct_list_entry(lease, struct member, lease);
}

void round_expire_leases(struct round *round, uint64_t now_ms)
{
    struct lease *lease;

    while ((lease = lease_find_expired(&round->leases, now_ms)))
        round_expire(round, member_of(lease), now_ms);
    while ((lease = lease_find_expired(&round->probes, now_ms))) {
        struct member *member = member_of(lease);

        lease_end(lease);
        if (member->is_away)
            round_expire(round, member, now_ms);
        else
            ct_list_add(&round->unsure, &lease->node);
    }
    while ((lease = lease_find_expired(&round->direct_leases, now_ms)))
        probe(round, member_of(lease), now_ms);
}

const struct member *round_find_unsure(const struct round *round)
{
    if (ct_list_is_empty(&round->unsure))
        return NULL;
    return member_of(ct_list_entry(round->unsure.next, struct lease, node));
}

uint64_t round_next_lease_ms(const struct round *round)
{
    uint64_t next_ms = lease_next_ms(&round->leases);

    if (lease_next_ms(&round->direct_leases) < next_ms)
        next_ms = lease_next_ms(&round->direct_leases);
    if (lease_next_ms(&round->probes) < next_ms)
        next_ms = lease_next_ms(&round->probes);
    return next_ms;
}

bool round_is_in_doubt(const struct round *round, uint64_t now_ms)
{
    return round_next_lease_ms(round) <= now_ms || round_find_unsure(round);
}

/* By its own clock an agent's workers end within the lease that we gave it last; those of an
 * agent that is paused by its guard's, which counts from what we sent last. */
uint64_t round_fence_of(const struct round *round, const struct member *member)
{
    const uint64_t lost_after_ms = round->settings.lost_after_ms;
    uint64_t fence_ms = round_deadline(member->heard_ms, lost_after_ms);
    uint64_t guard_ms = round_deadline(member->probed_ms, lost_after_ms / 2);

    if (member->probed_ms > member->heard_ms && guard_ms > fence_ms)
        fence_ms = guard_ms;
    return fence_ms;
}
