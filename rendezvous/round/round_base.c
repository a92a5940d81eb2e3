/* SPDX-License-Identifier: Apache-2.0 */
/* The base of all files of the state machine; it calls none of them: actions, changes of state, and
 * the counts that go with them. */
#include <assert.h>
#include <errno.h>

#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* Actions of one step: per member at most START, STOP, VERDICT, WAITING, DROP, REFUSE, REMOVED, PEER, RESIZE, DRAIN,
 * LOSS, MEMBERS, WORLD; and a few that are not about a member. Reserved when a member is added, so that no later step
 * can fail. */
enum {
    ACTIONS_PER_MEMBER = 13,
    ACTIONS_BESIDES = 16
};

static const bool edges[4][4] = {
    [ROUND_FORMING] = {[ROUND_RUNNING] = true, [ROUND_CLOSED] = true},
    [ROUND_RUNNING] = {[ROUND_STOPPING] = true, [ROUND_CLOSED] = true},
    [ROUND_STOPPING] = {[ROUND_FORMING] = true, [ROUND_CLOSED] = true},
    [ROUND_CLOSED] = {false},
};

const char *round_state_name(enum round_state state)
{
    static const char *const names[] = {
        [ROUND_FORMING] = "forming",
        [ROUND_RUNNING] = "running",
        [ROUND_STOPPING] = "stopping",
        [ROUND_CLOSED] = "closed",
    };

    return names[state];
}

/* ---- START -------------------------------------------------------------------------------- */

void round_name_master(struct ct_start *start, const struct member *member)
{
    memcpy(start->master_host, member->link.host, sizeof start->master_host);
    start->addr_count = member->join.addr_count;
    memcpy(start->addrs, member->join.addrs, sizeof start->addrs);
}

void round_copy_start(struct ct_start *out, const struct round *round,
                      const struct member *member)
{
    const struct member_start *own = &member->start;

    *out = *round_start_of(round, member);
    out->group_rank = own->group_rank;
    out->group_world_size = own->group_world_size;
    out->rank_base = own->rank_base;
    out->world_size = own->world_size;
    out->role_rank_base = own->role_rank_base;
    out->role_world_size = own->role_world_size;
    out->is_new = own->is_new;
    out->peer_count = own->peer_count;
    memcpy(out->peers, own->peers, sizeof out->peers);
    out->role_count = own->role_count;
    memcpy(out->roles, own->roles, sizeof out->roles);
    if (own->group_rank > 0)
        out->unlike[0] = out->versions[0] = '\0';
}

void round_set_start(struct round *round, struct member *member,
                     const struct ct_start *start)
{
    struct ct_start *common = start->is_new ? &round->new_start : &round->start;
    struct member_start *own = &member->start;

    if (common->generation != start->generation || start->group_rank == 0 ||
        start->is_new) /* only the START of group rank 0 has `unlike` and `versions` */
        *common = *start;
    *own = (struct member_start){
        .generation = start->generation,
        .group_rank = start->group_rank,
        .group_world_size = start->group_world_size,
        .rank_base = start->rank_base,
        .world_size = start->world_size,
        .role_rank_base = start->role_rank_base,
        .role_world_size = start->role_world_size,
        .is_new = start->is_new,
        .peer_count = start->peer_count,
        .role_count = start->role_count,
    };
    memcpy(own->peers, start->peers, sizeof own->peers);
    memcpy(own->roles, start->roles, sizeof own->roles);
}

/* ---- Actions and states ------------------------------------------------------------------ */

int round_reserve(struct round *round)
{
    size_t members = round->members.count + 1;
    size_t actions = ACTIONS_PER_MEMBER * members + ACTIONS_BESIDES;

    if (round->action_capacity < actions) {
        struct round_action *list = ct_realloc_array(round->actions, 2 * actions,
                                                     sizeof *list);

        if (!list)
            return -ENOMEM;
        round->actions = list;
        round->action_capacity = 2 * actions;
    }
    if (round->scratch_capacity < members) {
        struct member **list = ct_realloc_array(round->scratch, 2 * members,
                                                sizeof *list);

        if (!list)
            return -ENOMEM;
        round->scratch = list;
        round->scratch_capacity = 2 * members;
    }
    return 0;
}

struct round_action *round_push(struct round *round, enum round_action_kind kind)
{
    struct round_action *action = &round->actions[round->action_count++];

    assert(round->action_count <= round->action_capacity);
    *action = (struct round_action){.kind = kind};
    return action;
}

void round_push_to(struct round *round, enum round_action_kind kind,
                   const struct member *member)
{
    struct round_action *action;

    if (member->is_away)
        return; /* round_resume() sends what it has missed */
    action = round_push(round, kind);
    action->id = member->link.id;
    action->peer = member->link.peer;
}

void round_push_to_all(struct round *round, enum round_action_kind kind,
                       enum member_state state)
{
    member_for_each(member, &round->members)
        if (member->state == state)
            round_push_to(round, kind, member);
}

void round_change_state(struct round *round, enum round_state to, const char *why)
{
    struct round_action *action = round_push(round, ROUND_CHANGED);
    bool is_edge = edges[round->state][to];

    assert(is_edge);
    (void)is_edge; /* unused without assertions */
    action->from = round->state;
    action->to = to;
    action->why = why;
    round->state = to;
    round->last_call_ms = UINT64_MAX;
    round->waiting_due_ms = UINT64_MAX;
}

void round_note(struct round *round, struct member *member)
{
    ct_list_remove(&member->news);
    ct_list_add(&round->news, &member->news);
}

void round_change_member(struct round *round, struct member *member,
                         enum member_state to)
{
    round_note(round, member);
    round->counts[member->state]--;
    round->missing_survivors -= round_is_missing_survivor(member);
    member->state = to;
    round->counts[member->state]++;
    round->missing_survivors += round_is_missing_survivor(member);
}

void round_set_survivor(struct round *round, struct member *member, bool is_survivor)
{
    round_note(round, member);
    round->missing_survivors -= round_is_missing_survivor(member);
    member->is_survivor = is_survivor;
    round->missing_survivors += round_is_missing_survivor(member);
}

void round_set_asked(struct round *round, struct member *member, bool is_asked)
{
    if (member->is_asked != is_asked)
        round_note(round, member);
    round->asked_count -= member->is_asked;
    member->is_asked = is_asked;
    round->asked_count += member->is_asked;
}

/* The fingerprint is that of the present nodes: it is forgotten with the last of them. */
void round_forget_fingerprint(struct round *round)
{
    if (round->generation == 0 && round->counts[MEMBER_READY] == 0)
        round->has_fingerprint = false;
}

/* The list of absent nodes changed: send WAITING to all, but not more often than people can
 * read. */
void round_announce(struct round *round, uint64_t now_ms)
{
    uint64_t due_ms = round->waiting_sent_ms + ROUND_WAITING_EVERY_MS;

    if (round->waiting_sent_ms == 0 || due_ms < now_ms)
        due_ms = now_ms;
    round->waiting_due_ms = due_ms;
}

struct ct_failure round_name_node(const struct round *round,
                                  const struct member *member, enum ct_cause cause,
                                  const char *why)
{
    struct ct_failure failure = {
        .generation = round->generation,
        .cause = (uint8_t)cause,
        .rank = -1,
        .local_rank = -1,
        .node_rank = -1,
        .step = -1,
    };

    (void)ct_copy(failure.host, sizeof failure.host, member->link.host);
    (void)ct_copy(failure.text, sizeof failure.text, why);
    return failure;
}

/* No world starts before this time: workers may be alive until then. */
void round_raise_fence(struct round *round, uint64_t fence_ms)
{
    if (fence_ms > round->fence_ms)
        round->fence_ms = fence_ms;
}

/* The agent's clock may be slow: agent/link/node_lease.h makes its deadline earlier by this error.
 * Our clock may be fast: added here. */
uint64_t round_outlive_ms(uint64_t lost_after_ms)
{
    const uint64_t true_ms = ct_deadline_after(lost_after_ms, ROUND_KILL_MS);

    return ct_deadline_after(true_ms, true_ms / ROUND_CLOCK_ERROR);
}

void round_hold_until(struct round *round, uint64_t until_ms, uint64_t now_ms)
{
    if (round->held_ms <= now_ms && round->counts[MEMBER_READY] > 0)
        round_announce(round, now_ms); /* these wait for it from now on */
    if (until_ms > round->held_ms)
        round->held_ms = until_ms;
    round_raise_fence(round, until_ms);
}

void round_hold(struct round *round, uint64_t given_ms)
{
    round_hold_until(
        round,
        ct_deadline_after(given_ms, round_outlive_ms(round->settings.lost_after_ms)),
        given_ms);
}

void round_wait(struct round *round, uint64_t until_ms)
{
    if (round->generation == 0)
        round_raise_fence(round, until_ms);
}

void round_raise_floor(struct round *round, uint64_t generation)
{
    /* The number comes from an agent and may be wrong: it must not come near the end of its
     * range. */
    if (generation > round->generation && generation > round->floor &&
        generation - round->generation < UINT32_MAX)
        round->floor = generation;
}

/* ---- How large worlds are: limits and units ---------------------------------------------- */

size_t round_world_size(const struct round *round, size_t ready)
{
    const struct round_settings *settings = &round->settings;
    size_t size = ready < settings->max_nodes ? ready : settings->max_nodes;

    if (settings->node_unit > 1)
        size -= size % settings->node_unit;
    return size < settings->min_nodes ? 0 : size;
}

bool round_has_wrong_size(const struct round *round)
{
    const size_t in_world = round->counts[MEMBER_RUNNING] +
                            round->counts[MEMBER_SUCCEEDED];
    const size_t possible = round_world_size(round,
                                             in_world + round->counts[MEMBER_READY]);

    return possible > round->world_count ||
           round->world_count > round->settings.max_nodes;
}
