/* SPDX-License-Identifier: Apache-2.0 */
/* Who has been heard of lately, and what the silence of the others means.
 *
 *     heard ──4/5 of a lease──> PEER sent ──1/5──> unsure ──SILENT──> lost
 *       ▲                          ▲                  │ PAUSED
 *       └───── any message ────────┴──────────────────┘ (until pause_ms is over)
 *
 * Only a direct member can be unsure: its kernel acknowledges to ours, nobody in its place.
 * Others are lost when their lease is over. */
#include "rendezvous/round/round_private.h"

static void probe(struct round *round, struct member *member, uint64_t now_ms)
{
    if (!member->is_away) { /* else there is nothing to send it over */
        member->probed_ms = now_ms;
        round_push_to(round, ROUND_SEND_PEER, member);
    }
    ct_lease_renew(&round->probes, &member->lease, now_ms);
}

void round_on_paused(struct round *round, struct member *member, uint64_t now_ms)
{
    if (now_ms >= round_deadline(member->received_ms, round->settings.pause_ms)) {
        round_expire(round, member, now_ms);
        return;
    }
    member->is_paused = true;
    probe(round, member, now_ms);
    round_start_if_complete(round, now_ms);
}

void round_expire_leases(struct round *round, uint64_t now_ms)
{
    struct ct_lease *lease;

    while ((lease = ct_lease_find_expired(&round->leases, now_ms)))
        round_expire(round, round_member_of(lease), now_ms);
    while ((lease = ct_lease_find_expired(&round->probes, now_ms))) {
        struct member *member = round_member_of(lease);

        ct_lease_end(lease);
        if (member->is_away)
            round_expire(round, member, now_ms);
        else
            ct_list_add(&round->unsure, &lease->node);
    }
    while ((lease = ct_lease_find_expired(&round->direct_leases, now_ms)))
        probe(round, round_member_of(lease), now_ms);
}
