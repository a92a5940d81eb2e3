/* SPDX-License-Identifier: Apache-2.0 */
/* worker_sdk/wire/takeover.h on the host's side, and on the heir's: while other members of the last
 * world could go on without this server, nodes with workers get no acknowledgement and no
 * world is started. */
#include "rendezvous/round_private.h"
#include "worker_sdk/wire/takeover.h"

static bool is_watched(const struct round *round)
{
    return round->settings.self_key != 0;
}

static uint64_t wait_ms(const struct round *round)
{
    return ct_takeover_wait_ms(round->settings.lost_after_ms, round->settings.proof_ms);
}

/* ---- Heir -------------------------------------------------------------------------------- */

int round_inherit(struct round *round, const struct ct_heritage *heritage)
{
    const int rc = allegiance_begin(&round->allegiance, heritage,
                                    heritage->self != heritage->leader);

    if (rc < 0)
        return rc;
    /* The host before may have begun one world more, an heir of a lower rank another. */
    round->generation = heritage->generation + 1 + heritage->self;
    round->restart_count = heritage->restart_count;
    return 0;
}

void round_take_allegiance(struct round *round, struct allegiance *allegiance)
{
    allegiance_end(&round->allegiance);
    round->allegiance = *allegiance;
    *allegiance = (struct allegiance){0};
    if (is_watched(round) && round->floor < round->allegiance.last_generation)
        round->floor = round->allegiance.last_generation;
}

/* What it has followed before may live until then. */
static void wait_for_others(struct round *round, const struct ct_claim *claim,
                            uint64_t now_ms)
{
    const uint64_t limit_ms = wait_ms(round);

    if (claim->server == 0 || claim->server == round->settings.server ||
        claim->age_ms >= limit_ms)
        return;
    round_raise_fence(round, round_deadline(now_ms, limit_ms - claim->age_ms));
}

void round_on_claim(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct allegiance *allegiance = &round->allegiance;
    const struct allegiance_entry *entry;

    if (member_is_in_world(member) || !is_watched(round))
        return;
    member->claim = message->claim;
    member->place = UINT32_MAX;
    entry = allegiance_find(allegiance, member->claim.key);
    if (allegiance->is_heir && entry &&
        member->claim.generation == allegiance->generation)
        member->place = (uint32_t)(entry - allegiance->entries);
    if (member->claim.world > allegiance->generation &&
        member->claim.world_server != round->settings.server)
        allegiance_lose(&round->allegiance, member->claim.key);
    wait_for_others(round, &member->claim, now_ms);
    round_push_to(round, ROUND_SEND_ECHO, member);
}

/* ---- Host -------------------------------------------------------------------------------- */

static bool has_heirs(const struct round *round, uint64_t *keys, size_t *self)
{
    size_t found = 0;

    *self = SIZE_MAX;
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];
        const uint32_t rank = member->start.group_rank;

        if (!member_is_in_world(member) || rank >= round->world_count)
            continue;
        if (member->claim.key == 0)
            return false;
        keys[rank] = member->claim.key;
        if (member->claim.key == round->settings.self_key)
            *self = rank;
        found++;
    }
    return found == round->world_count && *self != SIZE_MAX;
}

static void prove_members(struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        allegiance_hear(&round->allegiance, member->claim.key, member->echo_ms, 0);
    }
}

void round_renew_roster(struct round *round)
{
    uint64_t keys[CT_TAKEOVER_NODES_MAX];
    struct ct_heritage heritage = {.generation = round->generation,
                                   .min_nodes = round->settings.min_nodes,
                                   .keys = keys,
                                   .count = round->world_count};

    round->allegiance.last_generation = round->generation;
    if (!is_watched(round) || round->state != ROUND_RUNNING ||
        round->allegiance.generation == round->generation ||
        (round->allegiance.count > 0 && !allegiance_is_over(&round->allegiance)))
        return;
    allegiance_end(&round->allegiance);
    if (!ct_takeover_is_possible(round->world_count, round->settings.min_nodes) ||
        !has_heirs(round, keys, &heritage.self) ||
        allegiance_begin(&round->allegiance, &heritage, false) < 0)
        return;
    prove_members(round);
    for (size_t i = 0; i < round->members.count; i++) {
        if (member_is_in_world(round->members.list[i]))
            round_push_to(round, ROUND_SEND_ROSTER, round->members.list[i]);
    }
}

void round_on_echo(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_echo *echo = &message->echo;

    if (!is_watched(round) || echo->server != round->settings.server ||
        echo->time_ms > now_ms)
        return;
    if (echo->time_ms > member->echo_ms)
        member->echo_ms = echo->time_ms;
    allegiance_hear(&round->allegiance, member->claim.key, echo->time_ms,
                    echo->generation);
    round_renew_roster(round);
    round_start_if_complete(round, now_ms);
}

bool round_may_start(struct round *round, uint64_t now_ms)
{
    struct allegiance *allegiance = &round->allegiance;

    for (size_t i = 0; i < allegiance->count; i++)
        allegiance->entries[i].is_here = false;
    for (size_t i = 0; i < round->members.count && allegiance->count > 0; i++) {
        const struct member *member = round->members.list[i];
        struct allegiance_entry *entry = allegiance_find(allegiance, member->claim.key);

        if (entry && !member->is_away)
            entry->is_here = true;
    }
    return allegiance_may_start(allegiance, now_ms, round->settings.proof_ms);
}

bool round_may_acknowledge(const struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct member *member = member_find(&round->members, id);

    return round->allegiance.count == 0 || !member || !member_is_in_world(member) ||
           allegiance_is_sure(&round->allegiance, now_ms, round->settings.proof_ms);
}
