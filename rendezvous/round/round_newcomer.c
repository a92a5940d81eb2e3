/* SPDX-License-Identifier: Apache-2.0 */
/* --survive-replace: a node that joins while others continue without a lost node gets the place of that node in the
 * running world, and no worker is stopped for it.
 *
 *     a node is lost ──WORLD without its ranks──> its place is free ──JOIN with as many workers──> START of this
 *     generation, is_new, and the last WORLD ──GROW of each of its ranks──> as a rank that is started again
 *
 * The other nodes get the newcomer's addresses first. Its START waits until the workers of the lost
 * node must be dead, so no rank runs twice. The newcomer's workers are in no world and meet no
 * other ranks until a WORLD names them; if the newcomer is lost before, no LOSS is sent.
 *
 * The free places follow from the taken ones, so a restarted server knows them, too. If a world has
 * several roles, a node has a place in each; then no place is given, and all nodes start again. */
#include <string.h>

#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"

struct place {
    uint32_t group_rank, rank_base, slots;
};

static const struct member *find_running(const struct round *round)
{
    member_for_each(it, &round->members)
        if (it->state == MEMBER_RUNNING)
            return it;
    return NULL;
}

/* Lists the nodes of the world in `out` (round->scratch), by group rank. */
static size_t list_world(const struct round *round, struct member **out)
{
    size_t count = 0;

    member_for_each(member, &round->members) {
        size_t at = count;

        if (member->state != MEMBER_RUNNING && member->state != MEMBER_SUCCEEDED)
            continue;
        for (; at > 0 && out[at - 1]->start.group_rank > member->start.group_rank; at--)
            out[at] = out[at - 1];
        out[at] = member;
        count++;
    }
    return count;
}

/* The first free place between `from` and the node at `to`. If several nodes were lost there, all
 * are assumed to have had the same number of workers. */
static bool find_gap(struct place *out, const struct place *from,
                     const struct place *to)
{
    const uint32_t nodes = to->group_rank - from->group_rank;
    const uint32_t ranks = to->rank_base - from->rank_base;

    if (nodes == 0 || ranks == 0 || ranks % nodes != 0)
        return false;
    *out = (struct place){from->group_rank, from->rank_base, ranks / nodes};
    return true;
}

static bool find_place(const struct round *round, struct place *out)
{
    struct member **world = round->scratch;
    const struct member *any = find_running(round);
    struct place next = {0};
    size_t count;

    if (!any || any->start.group_world_size == round->world_count)
        return false;
    count = list_world(round, world);

    for (size_t i = 0; i < count; i++) {
        const struct member_start *start = &world[i]->start;

        if (find_gap(out, &next,
                     &(struct place){start->group_rank, start->rank_base, 0}))
            return true;
        next = (struct place){start->group_rank + 1,
                              start->rank_base + world[i]->join.slots, 0};
    }
    return count > 0 && find_gap(out, &next,
                                 &(struct place){world[0]->start.group_world_size,
                                                 world[0]->start.world_size, 0});
}

static bool fits(const struct round *round, const struct member *newcomer,
                 const struct place *place)
{
    const struct member *other = find_running(round);

    return other && round_could_replace(round, newcomer, other) &&
           newcomer->join.slots == place->slots &&
           round_world_size(round, round->world_count + 1) == round->world_count + 1;
}

bool round_has_place(const struct round *round, const struct member *newcomer)
{
    struct place place;

    return round->state == ROUND_RUNNING && !round->is_finishing &&
           find_place(round, &place) && fits(round, newcomer, &place);
}

/* True if all losses are decided, and no worker of the place's former node lives. The worker store
 * has a node again: a newcomer must not get the place of a lost node that still counts as the
 * store's. */
static bool is_settled(const struct round *round, uint64_t now_ms)
{
    return round->state == ROUND_RUNNING && !round->is_finishing &&
           round->world.epoch > 0 && round->loss.losses == round->world.losses &&
           round->survive_due_ms == 0 && round->ranks_fence_ms == 0 &&
           !round_is_store_lost(round) && now_ms >= round->fence_ms;
}

/* Like the START of the others, except for its place and the present address of the worker store. */
static void set_start(struct round *round, struct member *newcomer,
                      const struct place *place)
{
    struct ct_start start;
    const struct ct_world *world = &round->world;

    round_copy_start(&start, round, find_running(round));
    start.group_rank = place->group_rank;
    start.rank_base = start.role_rank_base = place->rank_base;
    start.reach = CT_REACH_FREE;
    start.peer_count = 0;
    start.unlike[0] = start.versions[0] = '\0';
    start.is_new = 1;
    for (size_t i = 0; world->store_port > 0 && i < round->members.count; i++) {
        const struct member *keeper = round->members.list[i];

        if (!member_is_in_world(keeper) ||
            keeper->start.group_rank != world->store_node)
            continue;
        start.master_port = world->store_port;
        memcpy(start.master_addr, world->store_addr, sizeof start.master_addr);
        round_name_master(&start, keeper);
        break;
    }
    round_set_start(round, newcomer, &start);
}

static void begin(struct round *round, struct member *newcomer,
                  const struct place *place)
{
    set_start(round, newcomer, place);
    round_set_survivor(round, newcomer, true);
    round_change_member(round, newcomer, MEMBER_RUNNING);
    newcomer->step = -1;
    newcomer->moved_ms = 0;
    newcomer->has_proven = true; /* the others do not wait for its proof */
    newcomer->is_still = false;
    round->world_count++;
    round->newcomers++;
}

/* Other ready members may have waited for this place: each now waits for another place, makes all
 * nodes start again, or becomes a spare. */
static void settle_others(struct round *round, uint64_t now_ms)
{
    member_for_each(member, &round->members) {
        if (member->state != MEMBER_READY || round_has_place(round, member))
            continue;
        if (round_has_wrong_size(round)) {
            round_stop_to_grow(round, now_ms);
            return;
        }
        round_send_spare(round, member);
    }
}

/* Sends the newcomer's addresses to all, for the worker store and for connections between ranks;
 * the newcomer gets its place ROUND_NEWCOMER_MS later. */
static void announce(struct round *round, struct member *newcomer, uint64_t now_ms)
{
    newcomer->is_announced = true;
    round->newcomer_due_ms = now_ms + ROUND_NEWCOMER_MS;
    round_push_to_all(round, ROUND_SEND_MEMBERS, MEMBER_RUNNING);
}

/* A node that is away misses the newcomer's addresses and would not let it in; it gets all
 * addresses when it resumes. */
static bool is_any_away(const struct round *round)
{
    member_for_each(member, &round->members)
        if (member->state == MEMBER_RUNNING && member->is_away)
            return true;
    return false;
}

void round_take_newcomer(struct round *round, uint64_t now_ms)
{
    struct member *newcomer = NULL;
    struct place place;

    if (now_ms >= round->newcomer_due_ms)
        round->newcomer_due_ms = 0;
    if (round->counts[MEMBER_READY] == 0 || !is_settled(round, now_ms) ||
        !find_place(round, &place))
        return;
    for (size_t i = 0; i < round->members.count && !newcomer; i++)
        if (fits(round, round->members.list[i], &place))
            newcomer = round->members.list[i];
    if (!newcomer && round_has_wrong_size(round)) /* none fits any more */
        round_stop_to_grow(round, now_ms);
    if (!newcomer || round->newcomer_due_ms > 0 || is_any_away(round))
        return;
    if (!newcomer->is_announced) {
        announce(round, newcomer, now_ms);
        return;
    }
    begin(round, newcomer, &place);
    round_push_to(round, ROUND_SEND_START, newcomer);
    round_send_world(round, newcomer);
    settle_others(round, now_ms);
}
