/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a world that runs agree on.
 *
 * Before its workers start: that they reach each other, where they could do so on several networks (networks.h). A
 * cut one ends the round before it has a worker, and costs no restart.
 *
 * With --survive: who goes on when a rank is lost.
 *
 *     epoch e ──LOSS of one──> LOSS to all ──STILL of each node that has not succeeded──> WORLD e + 1 to all
 *        │                        ▲ │ LOSS: its node has to say STILL again                      │
 *        │                        └─┘                                                            │
 *        └──STILL of each without a loss: they only lost sight of each other ────────────────────┘
 *
 * Who says STILL has ranks that do nothing until they get the next WORLD, and nothing of a lost one of its lives;
 * that stays so, whatever becomes of its connection. So nobody is at work in epoch e when e + 1 is told, and that is
 * journalled first. A node that is lost, or a failure, ends the world as ever; nothing here waits for anything. */
#include "rendezvous/round/round_private.h"

#include <string.h>

#include "worker_sdk/base/str.h"

static bool is_proven(const struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state == MEMBER_RUNNING && !member->has_proven)
            return false;
    }
    return true;
}

/* Those who know already are told again after a resume, which does no harm. */
static void go(struct round *round)
{
    round->reachability = (struct ct_reachability){.generation = round->generation};
    for (size_t i = 0; i < round->members.count; i++)
        if (round->members.list[i]->state == MEMBER_RUNNING)
            round_push_to(round, ROUND_SEND_REACHABILITY, round->members.list[i]);
}

void round_on_reachability(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_reachability *told = message->reachability;
    const struct ct_failure cut = round_name_node(round, member, CT_CAUSE_NONE,
                                                  told->cut);

    if (round->state != ROUND_RUNNING || member->state != MEMBER_RUNNING ||
        told->generation != round->generation || member->start.reach != CT_REACH_PROVE)
        return;
    if (told->cut[0] && !round->is_finishing &&
        networks_cut(&round->networks, member->start.master_addr)) {
        round_stop_world(round, CT_STOP_NETWORK, &cut, now_ms);
        return;
    }
    member->has_proven = true;
    if (is_proven(round))
        go(round);
}

/* ---- Who goes on -------------------------------------------------------------------------- */

static bool is_in(const uint8_t ranks[CT_WORLD_BYTES], uint32_t rank)
{
    return rank < CT_WORLD_BYTES * 8 && ranks[rank / 8] & 1u << rank % 8;
}

static bool is_own(const struct member *member, uint32_t rank)
{
    return rank >= member->start.rank_base &&
           rank - member->start.rank_base < member->join.slots;
}

/* A member that works in this world, and means it. */
static bool is_at_work(const struct round *round, const struct member *member,
                       uint64_t generation)
{
    return round->state == ROUND_RUNNING && member->state == MEMBER_RUNNING &&
           generation == round->generation;
}

static void forget_still(struct round *round, struct member *member)
{
    if (!member->is_still)
        return;
    member->is_still = false;
    for (uint32_t i = 0; i < member->join.slots; i++) {
        const uint32_t rank = member->start.rank_base + i;

        if (is_in(round->still, rank))
            round->still[rank / 8] &= (uint8_t) ~(1u << rank % 8);
    }
}

static bool are_all_still(const struct round *round)
{
    bool is_any = false;

    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state == MEMBER_RUNNING && !member->is_still)
            return false;
        is_any |= member->is_still;
    }
    return is_any && round->state == ROUND_RUNNING;
}

static void send_to_running(struct round *round, enum round_action_kind kind)
{
    for (size_t i = 0; i < round->members.count; i++)
        if (round->members.list[i]->state == MEMBER_RUNNING)
            round_push_to(round, kind, round->members.list[i]);
}

static void regroup(struct round *round)
{
    if (!are_all_still(round))
        return;
    round->world.generation = round->generation;
    round->world.epoch++;
    round->world.losses = round->loss.losses;
    memcpy(round->world.ranks, round->still, sizeof round->still);
    for (size_t i = 0; i < round->members.count; i++)
        forget_still(round, round->members.list[i]);
    send_to_running(round, ROUND_SEND_WORLD);
}

void round_on_loss(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_loss *loss = message->loss;
    const uint32_t rank = (uint32_t)loss->rank, losses = round->loss.losses + 1;

    if (!is_at_work(round, member, loss->generation))
        return;
    if (loss->rank < 0 || !is_own(member, rank) || rank >= CT_WORLD_BYTES * 8) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a LOSS of a rank that is not its own", now_ms);
        return;
    }
    if (is_in(round->lost, rank))
        return; /* told again after a break */
    forget_still(round, member);
    round->lost[rank / 8] |= (uint8_t)(1u << rank % 8);
    round->loss = *loss;
    round->loss.losses = losses;
    round->world.generation = round->generation;
    send_to_running(round, ROUND_SEND_LOSS);
}

/* Of ranks of its own that are not lost. */
static bool is_sound(const struct round *round, const struct member *member,
                     const struct ct_still *still)
{
    for (uint32_t rank = 0; rank < CT_WORLD_BYTES * 8; rank++)
        if (is_in(still->ranks, rank) &&
            (!is_own(member, rank) || is_in(round->lost, rank)))
            return false;
    return true;
}

void round_on_still(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_still *still = message->still;

    if (!is_at_work(round, member, still->generation) ||
        still->epoch != round->world.epoch)
        return; /* it was on its way when the next one was decided */
    if (!is_sound(round, member, still)) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a STILL with ranks that are lost or not its own", now_ms);
        return;
    }
    forget_still(round, member);
    member->is_still = true;
    for (size_t i = 0; i < CT_WORLD_BYTES; i++)
        round->still[i] |= still->ranks[i];
    regroup(round);
}

void round_leave_world(struct round *round, struct member *member)
{
    forget_still(round, member);
    regroup(round);
}

void round_send_world(struct round *round, const struct member *member)
{
    if (round->world.epoch > 0)
        round_push_to(round, ROUND_SEND_WORLD, member);
    if (round->loss.losses > round->world.losses)
        round_push_to(round, ROUND_SEND_LOSS, member);
}
