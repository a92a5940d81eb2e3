/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a running world and the nodes they are on, and a node that is lost while the others
 * continue (--survive). The protocol is described in round_running.c. */
#include "rendezvous/round/master.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

bool round_is_proven(const struct round *round)
{
    member_for_each(member, &round->members) {
        if (member->state == MEMBER_RUNNING && !member->has_proven)
            return false;
    }
    return true;
}

bool round_has_rank(const uint8_t ranks[CT_WORLD_BYTES], uint32_t rank)
{
    return rank < CT_WORLD_BYTES * 8 && ranks[rank / 8] & 1u << rank % 8;
}

bool round_owns_rank(const struct member *member, uint32_t rank)
{
    return rank >= member->start.rank_base &&
           rank - member->start.rank_base < member->join.slots;
}

/* True if a rank of the member is in the present `world`, lost by now or not: other ranks may have
 * met it. */
static bool is_met(const struct round *round, const struct member *member)
{
    for (uint32_t i = 0; i < member->join.slots; i++)
        if (round_has_rank(round->world.ranks, member->start.rank_base + i))
            return true;
    return round->world.epoch == 0;
}

bool round_is_outside(const struct round *round, const struct member *member)
{
    return round->is_carried_on && !is_met(round, member);
}

size_t round_count_inside(const struct round *round)
{
    size_t count = 0;

    member_for_each(member, &round->members)
        count += member->state == MEMBER_RUNNING && !round_is_outside(round, member);
    return count;
}

void round_forget_still(struct round *round, struct member *member)
{
    if (!member->is_still)
        return;
    member->is_still = false;
    for (uint32_t i = 0; i < member->join.slots; i++) {
        const uint32_t rank = member->start.rank_base + i;

        if (round_has_rank(round->still, rank))
            round->still[rank / 8] &= (uint8_t) ~(1u << rank % 8);
    }
}

/* ---- Without a node ----------------------------------------------------------------------- */

/* True if the member may have started its workers: if reachability must be proven, they wait until
 * all nodes have proven it. */
static bool has_begun(const struct round *round, const struct member *member)
{
    return round_start_of(round, member)->reach != CT_REACH_PROVE ||
           round_is_proven(round);
}

/* True: all nodes of the world have one role, the same one. */
static bool has_one_role(const struct member *member)
{
    return member->join.roles.count == 0 &&
           member->start.role_world_size == member->start.world_size;
}

/* True if the newcomer can reach MASTER_ADDR and the worker store: running workers keep the
 * addresses that they have. */
static bool has_way(const struct round *round, const struct member *newcomer,
                    const struct member *other)
{
    return master_is_common(round_start_of(round, other)->master_addr, newcomer,
                            other) &&
           (round->world.store_port == 0 ||
            master_is_common(round->world.store_addr, newcomer, other));
}

/* After a reload the newcomer would run another program than this world. */
bool round_could_replace(const struct round *round, const struct member *newcomer,
                         const struct member *other)
{
    return round->world_reload == round->reload.number &&
           newcomer->state == MEMBER_READY && !newcomer->is_excluded &&
           newcomer->join.replaces && other->join.replaces && has_one_role(other) &&
           newcomer->join.roles.count == 0 && has_way(round, newcomer, other) &&
           strcmp(newcomer->join.role, other->join.role) == 0;
}

/* The number of spares that can join only if all nodes start again. */
static size_t count_spares(const struct round *round, const struct member *lost)
{
    size_t count = 0;

    member_for_each(member, &round->members) {
        count += member->state == MEMBER_READY &&
                 !(round_could_replace(round, member, lost) &&
                   member->join.slots == lost->join.slots);
    }
    return count;
}

static bool keeps_store(const struct round *round, const struct member *member)
{
    return round->settings.endpoint_port == 0 &&
           member->start.group_rank == round->world.store_node;
}

bool round_may_survive(const struct round *round, const struct member *member)
{
    const size_t left = round->counts[MEMBER_RUNNING] +
                        round->counts[MEMBER_SUCCEEDED] - 1;

    return round->state == ROUND_RUNNING && member->state == MEMBER_RUNNING &&
           member->join.survive_ms > 0 &&
           member->start.world_size <= CT_WORLD_BYTES * 8 &&
           round_count_inside(round) > !round_is_outside(round, member) &&
           has_begun(round, member) &&
           round_world_size(round, left + count_spares(round, member)) == left;
}

/* Marks the member's ranks as lost. Returns how many of the present `world` were not lost before;
 * some may have ended with 0, which only their agent knew. */
static uint32_t lose_ranks(struct round *round, const struct member *member)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < member->join.slots; i++) {
        const uint32_t rank = member->start.rank_base + i;

        if (rank >= CT_WORLD_BYTES * 8 || round_has_rank(round->lost, rank))
            continue;
        round->lost[rank / 8] |= (uint8_t)(1u << rank % 8);
        count += round->world.epoch == 0 || round_has_rank(round->world.ranks, rank);
    }
    return count;
}

static void note_lost_node(struct round *round, uint32_t count, const char *text)
{
    const uint32_t losses = round->loss.losses + (count > 0 ? count : 1);
    const struct ct_loss before = round->sends_loss ? round->loss : (struct ct_loss){0};

    round->loss = (struct ct_loss){.generation = round->generation,
                                   .losses = losses,
                                   .rank = -1,
                                   .count = before.count + count};
    (void)ct_copy(round->loss.text, sizeof round->loss.text, text); /* same size */
    round->world.generation = round->generation;
    round->sends_loss = true;
}

/* No WORLD is sent before fence_ms; if the others have not all sent STILL within survive_ms after
 * it, the loss ends the world. */
static void wait_for_death(struct round *round, const struct member *member,
                           uint64_t fence_ms, uint64_t now_ms)
{
    const uint64_t due_ms = ct_deadline_after(fence_ms > now_ms ? fence_ms : now_ms,
                                              member->join.survive_ms);

    if (fence_ms > round->ranks_fence_ms)
        round->ranks_fence_ms = fence_ms;
    if (due_ms > round->survive_due_ms)
        round->survive_due_ms = due_ms;
}

void round_survive(struct round *round, struct member *member,
                   const struct ct_failure *loss, uint64_t now_ms)
{
    const uint64_t fence_ms = round_fence_of(round, member);
    const bool is_waited_for = is_met(round, member) || keeps_store(round, member);
    const uint32_t count = lose_ranks(round, member);
    char text[sizeof round->loss.text];

    round_forget_still(round, member);
    if (round->grow.generation > 0 &&
        round_owns_rank(member, (uint32_t)round->grow.rank))
        round->grow = (struct ct_grow){0}; /* that rank waits no more */
    round->world_count--;
    if (!is_waited_for) { /* the others do not wait for this node */
        if (round->ranks_fence_ms == 0)
            round->ranks_fence_ms = now_ms;
        return;
    }
    wait_for_death(round, member, fence_ms, now_ms);
    round->lost_node = *loss;
    if (count == 0 && !keeps_store(round, member))
        return; /* all its ranks were reported lost, but not as dead */
    (void)ct_format(text, sizeof text, "node %.64s (%u rank%s) is lost: %s", loss->host,
                    count, count == 1 ? "" : "s", loss->text); /* cut is fine */
    note_lost_node(round, count, text);
}

/* ---- The worker store --------------------------------------------------------------------- */

/* The order of candidates for the worker store: nodes with ranks in the world first, as the others
 * may lack the addresses of a newcomer; then by group rank. */
static bool is_before(const struct round *round, const struct member *a,
                      const struct member *b)
{
    return is_met(round, a) != is_met(round, b)
               ? is_met(round, a)
               : a->start.group_rank < b->start.group_rank;
}

/* Lists the nodes that can serve the worker store, the best in out[0]: each agent of this world
 * keeps an own store until the world ends. */
static size_t list_keepers(const struct round *round, struct member **out)
{
    size_t count = 0;

    member_for_each(member, &round->members) {
        if (member->state != MEMBER_RUNNING && member->state != MEMBER_SUCCEEDED)
            continue;
        out[count++] = member;
        if (is_before(round, member, out[0])) { /* best candidate so far */
            out[count - 1] = out[0];
            out[0] = member;
        }
    }
    return count;
}

bool round_is_store_lost(const struct round *round)
{
    member_for_each(member, &round->members)
        if (member_is_in_world(member) && keeps_store(round, member))
            return false;
    return round->settings.endpoint_port == 0;
}

void round_send_loss(struct round *round, const struct member *to)
{
    round->loss.has_store = round_is_store_lost(round);
    if (to)
        round_push_to(round, ROUND_SEND_LOSS, to);
    else
        round_push_to_all(round, ROUND_SEND_LOSS, MEMBER_RUNNING);
}

void round_move_store(struct round *round)
{
    struct member **world = round->scratch;
    const size_t count = list_keepers(round, world);
    struct ct_world *told = &round->world;

    if (!round_is_store_lost(round) || count == 0)
        return;
    told->store_node = world[0]->start.group_rank;
    told->store_port = world[0]->join.store_port;
    networks_choose_beside(told->store_addr,
                           round_start_of(round, world[0])->master_addr, world, count);
    round_push_to(round, ROUND_SEND_MEMBERS, world[0]);
}

/* ---- Restart of the server ----------------------------------------------------------------- */

/* The journal has the lost ranks, but not whether their node was lost: a node that is missing from
 * the world is taken as lost. */
void round_restore_loss(struct round *round, uint64_t now_ms)
{
    const struct member *any = round->members.count ? round->members.list[0] : NULL;

    if (!any || round->state != ROUND_RUNNING ||
        round->loss.losses == round->world.losses ||
        any->start.group_world_size == round->world_count)
        return;
    round->ranks_fence_ms = round->fence_ms;
    round->survive_due_ms = ct_deadline_after(
        round->fence_ms > now_ms ? round->fence_ms : now_ms, any->join.survive_ms);
    round->lost_node = (struct ct_failure){
        .generation = round->generation,
        .cause = CT_CAUSE_NODE_LOST,
        .rank = -1,
        .local_rank = -1,
        .node_rank = -1,
        .step = -1,
        .text = "a node was lost before this server took over the run"};
}
