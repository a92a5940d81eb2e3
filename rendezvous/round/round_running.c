/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a running world agree on.
 *
 * Before the workers start: that the nodes reach each other, if they have several networks
 * (networks.h). A network that fails is cut, which ends the round before it has a worker and costs
 * no restart.
 *
 * With --survive: which ranks continue when a rank is lost.
 *
 *     epoch e ──LOSS of one──> LOSS to all ──STILL of each node that has not succeeded──> WORLD e + 1 to all
 *        │                        ▲ │ LOSS: its node has to say STILL again                      │
 *        │                        └─┘                                                            │
 *        └──STILL of each without a loss: only a connection between ranks broke ─────────────────┘
 *
 * A lost rank may be started again (GROW) once a WORLD without it was sent. GROW is sent to all, so
 * that their ranks stop working and their nodes send STILL; from then on the STILL of its node has
 * the new rank. The new rank is in no world before the next WORLD, and may be lost like any other.
 *
 * The ranks of a node that has sent STILL do nothing until they get the next WORLD, and no process
 * of its lost ranks is alive; this holds also when its connection breaks. So no rank works in epoch
 * e when e + 1 is sent. WORLD is journalled before it is sent.
 *
 * A lost node is a LOSS of its ranks, if enough nodes are left. It cannot send STILL: the WORLD
 * waits until its last worker must be dead, by the rule for a START after a loss
 * (round_fence_of()). If the others have not all sent STILL within --survive-timeout after that, or
 * one fails, the loss ends the world as without --survive. The loss ends the world at once if a
 * spare waits that cannot take the lost node's place. Each agent has a worker store: when the store
 * in use is lost, WORLD names an empty one of another node; only ranks in that WORLD get its
 * address. */
#include "rendezvous/round/round_private.h"

#include <string.h>

/* After a resume some nodes get this a second time, which does no harm. */
static void go(struct round *round)
{
    round->reachability = (struct ct_reachability){.generation = round->generation};
    round_push_to_all(round, ROUND_SEND_REACHABILITY, MEMBER_RUNNING);
}

void round_on_reachability(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_reachability *theirs = message->reachability;
    const struct ct_failure cut = round_name_node(round, member, CT_CAUSE_NONE,
                                                  theirs->cut);

    if (round->state != ROUND_RUNNING || member->state != MEMBER_RUNNING ||
        theirs->generation != round->generation ||
        round_start_of(round, member)->reach != CT_REACH_PROVE)
        return;
    if (theirs->cut[0] && !round->is_finishing &&
        networks_cut(&round->networks, round->start.master_addr)) {
        round_stop_world(round, CT_STOP_NETWORK, &cut, now_ms);
        return;
    }
    member->has_proven = true;
    if (round_is_proven(round))
        go(round);
}

/* ---- Which ranks continue ----------------------------------------------------------------- */

/* True if the message is of this world and the member takes part in it. A newcomer that has sent
 * LEAVE also runs, but is in no `world` and comes into none. */
static bool is_at_work(const struct round *round, const struct member *member,
                       uint64_t generation)
{
    return round->state == ROUND_RUNNING && member->state == MEMBER_RUNNING &&
           member->is_survivor && generation == round->generation;
}

/* True for a newcomer in a lost node's place of which no rank has asked to be taken in: its ranks
 * come into no world before it sends STILL, and its workers may import for minutes. */
static bool is_idle_newcomer(const struct round *round, const struct member *member)
{
    if (!member->start.is_new || !round_is_outside(round, member))
        return false;
    for (uint32_t i = 0; i < member->join.slots; i++)
        if (!round_has_rank(round->lost, member->start.rank_base + i))
            return false;
    return true;
}

static bool are_all_still(const struct round *round)
{
    bool is_any = false;

    member_for_each(member, &round->members) {
        if (member->state == MEMBER_RUNNING && member->is_survivor &&
            !member->is_still && !is_idle_newcomer(round, member))
            return false;
        is_any |= member->is_still;
    }
    return is_any && round->state == ROUND_RUNNING;
}

/* True if a rank of the present `world` is in the next one. If all are new, nothing continues: the
 * losses count as failures and end the world. */
static bool is_carried_on(const struct round *round)
{
    for (size_t i = 0; i < CT_WORLD_BYTES; i++)
        if (round->still[i] &
            (round->world.epoch > 0 ? round->world.ranks[i] : UINT8_MAX))
            return true;
    return false;
}

static void regroup(struct round *round, uint64_t now_ms)
{
    if (now_ms < round->ranks_fence_ms || !are_all_still(round))
        return;
    round->is_carried_on = is_carried_on(round);
    if (!round->is_carried_on && round->survive_due_ms > 0) { /* ranks were lost */
        round_give_up_surviving(round, now_ms);
        return;
    }
    round->survive_due_ms = 0;
    round->world.generation = round->generation;
    round->world.epoch++;
    round->world.losses = round->loss.losses;
    memcpy(round->world.ranks, round->still, sizeof round->still);
    round_move_store(round);
    member_for_each(member, &round->members)
        round_forget_still(round, member);
    round_push_to_all(round, ROUND_SEND_WORLD, MEMBER_RUNNING);
}

void round_on_loss(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_loss *loss = message->loss;
    const uint32_t rank = (uint32_t)loss->rank, losses = round->loss.losses + 1;

    if (!is_at_work(round, member, loss->generation))
        return;
    if (loss->rank == -1 && round->survive_due_ms > 0) { /* it will not send STILL */
        round_give_up_surviving(round, now_ms);
        return;
    }
    if (loss->rank < 0 || !round_owns_rank(member, rank) ||
        rank >= CT_WORLD_BYTES * 8) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a LOSS message for a rank that is not on this node", now_ms);
        return;
    }
    if (round_has_rank(round->lost, rank))
        return; /* sent again after a resume */
    round_forget_still(round, member);
    round->lost[rank / 8] |= (uint8_t)(1u << rank % 8);
    round->loss = *loss;
    round->loss.losses = losses;
    round->loss.count = 1;
    round->world.generation = round->generation;
    round_send_loss(round, NULL);
}

static bool is_in_world(const struct round *round, uint32_t rank)
{
    return round->world.epoch == 0 || round_has_rank(round->world.ranks, rank);
}

void round_on_grow(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_grow *grow = message->grow;
    const uint32_t rank = (uint32_t)grow->rank;

    if (!is_at_work(round, member, grow->generation))
        return;
    if (grow->rank < 0 || !round_owns_rank(member, rank) ||
        rank >= CT_WORLD_BYTES * 8) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a GROW message for a rank that is not on this node", now_ms);
        return;
    }
    if (is_in_world(round, rank))
        return; /* sent again after a resume, and taken in meanwhile */
    round->lost[rank / 8] &= (uint8_t) ~(1u << rank % 8);
    round->grow = *grow;
    round_push_to_all(round, ROUND_SEND_GROW, MEMBER_RUNNING);
}

/* True if the STILL has only ranks of this member that are not lost. */
static bool is_sound(const struct round *round, const struct member *member,
                     const struct ct_still *still)
{
    for (uint32_t rank = 0; rank < CT_WORLD_BYTES * 8; rank++)
        if (round_has_rank(still->ranks, rank) &&
            (!round_owns_rank(member, rank) || round_has_rank(round->lost, rank)))
            return false;
    return true;
}

void round_on_still(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_still *still = message->still;

    if (!is_at_work(round, member, still->generation) ||
        still->epoch != round->world.epoch)
        return; /* the next epoch was decided while this STILL was on its way */
    if (!is_sound(round, member, still)) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a STILL message with ranks that are lost or not on this node",
                     now_ms);
        return;
    }
    round_forget_still(round, member);
    member->is_still = true;
    for (size_t i = 0; i < CT_WORLD_BYTES; i++)
        round->still[i] |= still->ranks[i];
    regroup(round, now_ms);
}

void round_leave_world(struct round *round, struct member *member, uint64_t now_ms)
{
    round_forget_still(round, member);
    regroup(round, now_ms);
}

void round_send_world(struct round *round, const struct member *member)
{
    if (round->world.epoch > 0) {
        round_push_to(round, ROUND_SEND_MEMBERS,
                      member); /* newcomers' addresses, before WORLD */
        round_push_to(round, ROUND_SEND_WORLD, member);
    }
    if (round->loss.losses > round->world.losses)
        round_send_loss(round, member);
    if (round->grow.generation > 0 && !is_in_world(round, (uint32_t)round->grow.rank))
        round_push_to(round, ROUND_SEND_GROW, member);
}

/* ---- Without a node ----------------------------------------------------------------------- */

static void expire(struct round *round, uint64_t now_ms)
{
    (void)ct_facts_add(
        &round->lost_node.facts, CT_FACT_NOW,
        "not survived: --survive-timeout ended before every node had reported "
        "that its ranks asked for the next world");
    round_give_up_surviving(round, now_ms);
}

void round_settle_loss(struct round *round, uint64_t now_ms)
{
    if (round->sends_loss && round->state == ROUND_RUNNING)
        round_send_loss(round, NULL);
    round->sends_loss = false;
    if (round->ranks_fence_ms > 0 && now_ms >= round->ranks_fence_ms) {
        round->ranks_fence_ms = 0;
        regroup(round, now_ms);
    }
    if (round->state == ROUND_RUNNING && round->survive_due_ms > 0 &&
        now_ms >= round->survive_due_ms)
        expire(round, now_ms);
}
