/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: when each member was last heard from, and until when workers of the others may live. The
 * diagram and what follows from silence are in round_resume.c. */
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"

static bool may_pause(const struct round *round)
{
    return round->settings.pause_ms > round->settings.lost_after_ms;
}

void round_init_leases(struct round *round)
{
    const uint64_t lost_after_ms = round->settings.lost_after_ms;

    ct_lease_queue_init(&round->leases, lost_after_ms);
    ct_lease_queue_init(&round->direct_leases, lost_after_ms - lost_after_ms / 5);
    ct_lease_queue_init(&round->probes, lost_after_ms / 5);
    ct_list_init(&round->unsure);
}

void round_renew(struct round *round, struct member *member, uint64_t now_ms)
{
    member->received_ms = now_ms;
    member->is_paused = false;
    ct_lease_renew(member->is_direct ? &round->direct_leases : &round->leases,
                   &member->lease, now_ms);
}

void round_on_direct(struct round *round, struct member *member, uint64_t now_ms)
{
    member->is_direct = may_pause(round);
    round_renew(round, member, now_ms); /* a message from the member led to this call */
}

const struct member *round_find_unsure(const struct round *round)
{
    if (ct_list_is_empty(&round->unsure))
        return NULL;
    return round_member_of(ct_list_entry(round->unsure.next, struct ct_lease, node));
}

uint64_t round_next_lease_ms(const struct round *round)
{
    uint64_t next_ms = ct_lease_next_ms(&round->leases);

    if (ct_lease_next_ms(&round->direct_leases) < next_ms)
        next_ms = ct_lease_next_ms(&round->direct_leases);
    if (ct_lease_next_ms(&round->probes) < next_ms)
        next_ms = ct_lease_next_ms(&round->probes);
    return next_ms;
}

bool round_is_in_doubt(const struct round *round, uint64_t now_ms)
{
    return round_next_lease_ms(round) <= now_ms || round_find_unsure(round);
}

static bool has_workers(const struct member *member)
{
    return member->state == MEMBER_RUNNING || member->state == MEMBER_STOPPING ||
           member->state == MEMBER_LEAVING;
}

uint64_t round_last_worker_ms(const struct round *round)
{
    uint64_t last_ms = round->fence_ms;

    member_for_each(member, &round->members) {
        if (has_workers(member) && !member->link.serves &&
            round_fence_of(round, member) > last_ms)
            last_ms = round_fence_of(round, member);
    }
    return last_ms;
}

/* An agent ends its workers within the lease that we gave it last, by its own clock. If the agent
 * is paused, its guard ends them; the guard counts from the last message that we sent. */
uint64_t round_fence_of(const struct round *round, const struct member *member)
{
    const uint64_t lost_after_ms = round->settings.lost_after_ms;
    uint64_t fence_ms = ct_deadline_after(member->received_ms,
                                          round_outlive_ms(lost_after_ms));
    uint64_t guard_ms = ct_deadline_after(member->probed_ms,
                                          round_outlive_ms(lost_after_ms / 2));

    if (member->probed_ms > member->received_ms && guard_ms > fence_ms)
        fence_ms = guard_ms;
    return fence_ms;
}
