/* SPDX-License-Identifier: Apache-2.0 */
/* FORMING: for which nodes the run waits, when the world starts, what WAITING says meanwhile. */
#include <assert.h>
#include <string.h>

#include "rendezvous/round/world_layout.h"
#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/wire/contract.h"

/* ---- Waiting ----------------------------------------------------------------------------- */

/* Until when workers of another world may live, or of another server of this run before it. */
static uint64_t find_held_ms(const struct round *round)
{
    const uint64_t found_ms = round->settings.found_after_ms;

    if (round->generation > 0)
        return round->fence_ms;
    /* The last call ends then: round_start_if_complete() has put it off. */
    return round->last_call_ms == found_ms && found_ms > round->held_ms
               ? found_ms
               : round->held_ms;
}

static void describe_waiting(struct round *round, uint64_t now_ms)
{
    const uint32_t unit = round->settings.node_unit > 1 ? round->settings.node_unit : 1;
    const uint64_t until_ms = round->last_call_ms < round->join_deadline_ms
                                  ? round->last_call_ms
                                  : round->join_deadline_ms;
    const uint64_t held_ms = find_held_ms(round);

    round->waiting = (struct ct_waiting){
        .joined = (uint32_t)round->counts[MEMBER_READY],
        .min_nodes = (round->settings.min_nodes + unit - 1) / unit * unit,
        .max_nodes = (uint32_t)round_world_size(round, SIZE_MAX),
        .left_ms = until_ms > now_ms ? until_ms - now_ms : 0,
        .held_ms = held_ms > now_ms ? held_ms - now_ms : 0,
    };
    round_format_absent(round, round->waiting.missing, sizeof round->waiting.missing);
}

void round_send_waiting_if_due(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_FORMING || now_ms < round->waiting_due_ms)
        return;
    describe_waiting(round, now_ms);
    round_push_to_all(round, ROUND_SEND_WAITING, MEMBER_READY);
    round->waiting_due_ms = round->counts[MEMBER_READY] > 0
                                ? now_ms + ROUND_WAITING_AGAIN_MS
                                : UINT64_MAX;
    round->waiting_sent_ms = now_ms;
}

/* `world` is in the order of the ranks: the first node is group rank 0 and has the
 * worker store. */
static void fill_start(struct round *round, struct member **world, size_t count)
{
    struct ct_start *start = &round->start;

    *start = (struct ct_start){
        .generation = round->generation,
        .restart_count = round->restart_count,
        .master_port = round->settings.endpoint_port ? round->settings.endpoint_port
                                                     : world[0]->join.store_port,
    };
    round_name_master(start, world[0]);
    networks_choose(&round->networks, start, world, count);
    member_assign_ranks(world, count);
    world_layout_describe(start, world, count);
    for (size_t i = 0; i < count; i++) {
        world[i]->start.generation = round->generation;
        world[i]->start.is_new = 0;
    }
}

static void push_spare(struct round *round, const struct member *member, uint32_t place)
{
    struct round_action *action = round_push(round, ROUND_SEND_WAITING);

    action->id = member->link.id;
    action->peer = member->link.peer;
    action->place = place;
    round->waiting = (struct ct_waiting){
        .joined = round->world_count,
        .min_nodes = round->settings.min_nodes,
        .max_nodes = round->settings.max_nodes,
        .is_spare = 1,
    };
}

/* A node of the world has no connection: the one that joins now may be the same node, whose place will
 * be free in a moment. */
static bool is_away(const struct round *round)
{
    member_for_each(it, &round->members) {
        if (it->is_away && member_is_in_world(it))
            return true;
    }
    return false;
}

void round_send_spare(struct round *round, const struct member *member)
{
    uint32_t place = 0;

    if ((round->owes_spares = is_away(round)))
        return;
    member_for_each(it, &round->members)
        place += it->state == MEMBER_READY && it->link.id <= member->link.id;
    push_spare(round, member, place);
}

static void send_spares(struct round *round)
{
    uint32_t place = 0;

    round->owes_spares = false;
    member_for_each(member, &round->members) {
        if (member->state == MEMBER_READY)
            push_spare(round, member, ++place);
    }
}

void round_send_owed_spares(struct round *round)
{
    if (round->owes_spares && round->state == ROUND_RUNNING && !is_away(round))
        send_spares(round);
}

/* Callers make sure that no worker of an older world can live: the fence is over, and no member is
 * in doubt. */
static void start_world(struct round *round, uint64_t now_ms, const char *why)
{
    struct member **world = round->scratch;
    size_t size = round_world_size(round, round->counts[MEMBER_READY]);
    size_t count = member_choose(&round->members, size, world);

    assert(count == size && count >= round->settings.min_nodes);
    round_change_state(round, ROUND_RUNNING, why);
    if (round->generation < round->floor)
        round->generation = round->floor;
    round->generation++;
    round->culprit_is_kept = false; /* the last STOP has told it */
    round->world_count = (uint32_t)count;
    round->world_reload = round->reload.number;
    round->is_finishing = false;
    round->started_ms = now_ms;
    round->join_deadline_ms = UINT64_MAX;
    round->loss = (struct ct_loss){0};
    round->ranks_fence_ms = round->survive_due_ms = 0;
    round->newcomers = 0;
    round->newcomer_due_ms = 0;
    round->world = (struct ct_world){.generation = round->generation};
    round->grow = (struct ct_grow){0};
    round->is_carried_on = false;
    memset(round->lost, 0, sizeof round->lost);
    memset(round->still, 0, sizeof round->still);
    failures_clear(&round->failures);
    round->hang_views = (struct hang_views){0};
    host_list_clear(&round->missing);
    fill_start(round, world, count);
    member_for_each(it, &round->members) {
        round_set_survivor(round, it, false);
        it->is_announced = false;
    }
    for (size_t i = 0; i < count; i++) {
        round_set_survivor(round, world[i], true);
        round_change_member(round, world[i], MEMBER_RUNNING);
        world[i]->step = -1;
        world[i]->moved_ms = 0;
        world[i]->has_proven = world[i]->is_still = false;
        round_push_to(round, ROUND_SEND_START, world[i]);
    }
    send_spares(round);
}

/* The first world starts when it is full, or last_call_ms after it has min nodes. Each later world
 * starts when all survivors have joined again: it does not wait for newcomers. */
void round_start_if_complete(struct round *round, uint64_t now_ms)
{
    size_t ready = round->counts[MEMBER_READY];

    if (round->state != ROUND_FORMING || now_ms < round->fence_ms ||
        round_is_in_doubt(round, now_ms))
        return;
    if (round_world_size(round, ready) == 0) {
        round->last_call_ms = UINT64_MAX;
        return;
    }
    if (round->generation > 0) {
        if (round->missing_survivors == 0)
            start_world(round, now_ms, "all are back");
        return;
    }
    if (round_world_size(round, ready) == round_world_size(round, SIZE_MAX)) {
        start_world(round, now_ms, "full");
        return;
    }
    if (round->last_call_ms == UINT64_MAX)
        round->last_call_ms = ct_deadline_after(now_ms, round->settings.last_call_ms);
    if (round->last_call_ms < round->settings.found_after_ms)
        round->last_call_ms = round->settings.found_after_ms;
    if (now_ms >= round->last_call_ms)
        start_world(round, now_ms, "last call over");
}

/* ---- The join deadline -------------------------------------------------------------------- */

/* Adds which nodes are present and which are absent, as the root cause of a verdict after a join
 * timeout. */
static void add_timeout_failure(struct round *round, uint64_t now_ms)
{
    struct ct_failure failure = {
        .generation = round->generation,
        .cause = CT_CAUSE_JOIN_TIMEOUT,
        .rank = -1,
        .local_rank = -1,
        .node_rank = -1,
        .restart_count = round->restart_count,
        .step = -1,
    };

    round_fill_timeout(round, &failure, now_ms);
    failures_add(&round->failures, &failure);
}

static void give_up_waiting(struct round *round, uint64_t now_ms)
{
    round_decide(round,
                 round->generation ? CT_OUTCOME_NODES_LOST : CT_OUTCOME_JOIN_TIMEOUT,
                 CT_EXIT_RETRY);
    add_timeout_failure(round, now_ms);
    round_close(round, "join deadline");
}

/* The join deadline: start with the nodes that are ready, or give up. */
void round_expire_forming(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_FORMING || now_ms < round->join_deadline_ms ||
        now_ms < round->fence_ms || round_is_in_doubt(round, now_ms))
        return;
    if (round_world_size(round, round->counts[MEMBER_READY]) == 0)
        give_up_waiting(round, now_ms);
    else if (round->generation == 0 && now_ms < round->settings.found_after_ms)
        round->join_deadline_ms = round->settings.found_after_ms;
    else
        start_world(round, now_ms, "join deadline");
}
