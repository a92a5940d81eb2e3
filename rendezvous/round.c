/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/limits.h"
#include "rendezvous/round_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

/* Actions of one step: per member at most START, STOP, VERDICT, WAITING, DROP, REFUSE, REMOVED, PEER, RESIZE,
 * DRAIN, ROSTER, ECHO; and
 * a few that are not about a member. Reserved when a member is added, so that no later step can fail. */
enum {
    ACTIONS_PER_MEMBER = 12,
    ACTIONS_BESIDES = 16
};

static const bool edges[4][4] = {
    [ROUND_FORMING] = {[ROUND_RUNNING] = true, [ROUND_CLOSED] = true},
    [ROUND_RUNNING] = {[ROUND_STOPPING] = true, [ROUND_CLOSED] = true},
    [ROUND_STOPPING] = {[ROUND_FORMING] = true, [ROUND_CLOSED] = true},
    [ROUND_CLOSED] = {false},
};

/* ---- Life -------------------------------------------------------------------------------- */

int round_create(struct round **out, const struct round_settings *settings)
{
    struct round *round;

    if (settings->node_unit > 1 &&
        settings->max_nodes - settings->max_nodes % settings->node_unit <
            settings->min_nodes)
        return -EINVAL;
    if (settings->min_nodes < 1 || settings->max_nodes < settings->min_nodes ||
        settings->max_nodes > ROUND_NODES_MAX || settings->lost_after_ms == 0)
        return -EINVAL;
    if (!(round = ct_zalloc(sizeof *round)))
        return -ENOMEM;
    round->settings = *settings;
    round->join_deadline_ms = UINT64_MAX;
    round->last_call_ms = UINT64_MAX;
    round->waiting_due_ms = UINT64_MAX;
    ct_list_init(&round->news);
    round_init_leases(round);
    lease_queue_init(&round->away, settings->lost_after_ms / 5 < ROUND_AWAY_MAX_MS
                                       ? settings->lost_after_ms / 5
                                       : ROUND_AWAY_MAX_MS);
    *out = round;
    return 0;
}

void round_destroy(struct round *round)
{
    if (!round)
        return;
    member_table_deinit(&round->members);
    allegiance_end(&round->allegiance);
    free(round->actions);
    free(round->scratch);
    free(round);
}

bool round_is_deserted(const struct round *round)
{
    return round->members.count == 0 && round->fence_ms > 0 &&
           round->state != ROUND_CLOSED;
}

void round_succeed(struct round *round, const struct round *deserted)
{
    round->fence_ms = deserted->fence_ms;
}

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

/* Timeouts come from peers: now + "for ever" must not wrap around. */
uint64_t round_deadline(uint64_t now_ms, uint64_t timeout_ms)
{
    return timeout_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + timeout_ms;
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
        return; /* what it is owed then is said when it resumes */
    action = round_push(round, kind);
    action->id = member->link.id;
    action->peer = member->link.peer;
}

void round_change_state(struct round *round, enum round_state to, const char *why)
{
    struct round_action *action = round_push(round, ROUND_CHANGED);
    bool is_edge = edges[round->state][to];

    assert(is_edge);
    (void)is_edge; /* without assertions */
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

static void remove_member(struct round *round, struct member *member)
{
    round_set_asked(round, member, false);
    round->counts[member->state]--;
    round->missing_survivors -= round_is_missing_survivor(member);
    round_push(round, ROUND_REMOVED)->id = member->link.id;
    member_remove(&round->members, member->link.id);
}

/* The fingerprint is that of the nodes that are here: it goes with the last of them. */
void round_forget_fingerprint(struct round *round)
{
    if (round->generation == 0 && round->counts[MEMBER_READY] == 0)
        round->has_fingerprint = false;
}

/* ---- Coming, going, time ----------------------------------------------------------------- */

static int add(struct round *round, const struct member_link *link, uint64_t now_ms)
{
    struct member *member;

    if (round_reserve(round) < 0 || !(member = member_add(&round->members, link)))
        return -ENOMEM;
    round->counts[MEMBER_CONNECTED]++;
    round_renew(round, member, now_ms);
    return 0;
}

/* Where the member was: a fact for people, "10.1.0.2, ranks 8-15". */
static void add_place(struct ct_failure *failure, const struct member *member)
{
    const uint32_t first = member->start.rank_base;
    const uint32_t last = first + member->join.slots - 1;

    if (!member_is_in_world(member))
        return;
    if (first == last)
        (void)ct_format(failure->facts, sizeof failure->facts, "was\t%s, rank %u\n",
                        member->link.seen_as, first);
    else
        (void)ct_format(failure->facts, sizeof failure->facts, "was\t%s, ranks %u-%u\n",
                        member->link.seen_as, first, last);
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

static struct ct_failure describe_loss(const struct round *round,
                                       const struct member *member, const char *reason,
                                       uint64_t now_ms)
{
    struct ct_failure failure = round_name_node(round, member, CT_CAUSE_NODE_LOST,
                                                reason);

    failure.node_rank = (int32_t)member->start.group_rank;
    failure.restart_count = round->restart_count;
    failure.uptime_ms = now_ms - round->started_ms;
    failure.step = member->step;
    add_place(&failure, member);
    return failure;
}

/* No world before then: workers may be alive until then. */
void round_raise_fence(struct round *round, uint64_t fence_ms)
{
    if (fence_ms > round->fence_ms)
        round->fence_ms = fence_ms;
}

void round_hold(struct round *round, uint64_t given_ms)
{
    round_raise_fence(round, round_deadline(given_ms, round->settings.lost_after_ms));
}

/* A member is gone without a word. What that means depends on what it owed the world. */
void round_lose(struct round *round, struct member *member, const char *reason,
                uint64_t now_ms)
{
    enum member_state before = member->state;
    struct ct_failure failure = describe_loss(round, member, reason, now_ms);
    bool was_owed = before == MEMBER_RUNNING || before == MEMBER_STOPPING ||
                    (member->is_survivor && before != MEMBER_SUCCEEDED);
    bool is_missed = before == MEMBER_READY || was_owed;
    bool is_root = round->is_undecided && member->is_asked;
    uint64_t fence_ms = round_fence_of(round, member);

    remove_member(round, member);
    round_forget_fingerprint(round);
    if (round->state == ROUND_CLOSED)
        return;
    round->lost_count += was_owed;
    if (is_root)
        round_blame_loss(round, &failure);
    else if (was_owed)
        failures_add(&round->failures, &failure);
    if (before == MEMBER_RUNNING || before == MEMBER_STOPPING ||
        before == MEMBER_LEAVING)
        round_raise_fence(round, fence_ms); /* its agent, cut off, ends them before */
    if (is_missed)
        host_list_add(&round->missing, failure.host);
    if (before == MEMBER_RUNNING) {
        round_stop_world(round, CT_STOP_NODE_LOST, &failure, now_ms);
        return;
    }
    round_finish_stopping(round, now_ms);
    if (round->state == ROUND_FORMING && is_missed)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

void round_expire(struct round *round, struct member *member, uint64_t now_ms)
{
    char reason[CT_REASON_MAX];

    (void)ct_format(
        reason, sizeof reason, "nothing heard for %.1f s, no goodbye%s",
        (double)(now_ms - member->heard_ms) / 1000,
        member->is_paused ? "; its host answered at first, its agent did not" : "");
    if (!member->is_away)
        round_push_to(round, ROUND_DROP, member);
    round_lose(round, member, reason, now_ms);
}

static void tick(struct round *round, uint64_t now_ms)
{
    round_expire_leases(round, now_ms);
    round_expire_away(round, now_ms);
    if (now_ms >= round->fence_ms)
        round->fence_ms = 0;
    if (round->state == ROUND_STOPPING && now_ms >= round->join_deadline_ms)
        round_give_up_stopping(round, now_ms);
    round_start_if_complete(round, now_ms);
    round_expire_forming(round, now_ms);
}

static void earlier(uint64_t *next_ms, uint64_t candidate_ms)
{
    if (candidate_ms < *next_ms)
        *next_ms = candidate_ms;
}

uint64_t round_next_ms(const struct round *round)
{
    uint64_t next_ms = round_next_lease_ms(round);

    earlier(&next_ms, lease_next_ms(&round->away));
    switch (round->state) {
    case ROUND_FORMING:
        earlier(&next_ms, round->waiting_due_ms);
        if (round->fence_ms > 0) { /* nothing else can happen before */
            earlier(&next_ms, round->fence_ms);
            break;
        }
        earlier(&next_ms, round->join_deadline_ms);
        earlier(&next_ms, round->last_call_ms);
        break;
    case ROUND_STOPPING: earlier(&next_ms, round->join_deadline_ms); break;
    case ROUND_RUNNING:
    case ROUND_CLOSED: break;
    }
    return next_ms;
}

/* ---- Step -------------------------------------------------------------------------------- */

#ifndef NDEBUG
/* What holds after every step, whatever was thrown at it. */
static void check_invariants(const struct round *round)
{
    size_t counts[MEMBER_LEFT + 1] = {0};
    size_t missing = 0, asked = 0, in_world;

    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        counts[member->state]++;
        missing += round_is_missing_survivor(member);
        asked += member->is_asked;
        assert(!member->is_asked || member->state == MEMBER_STOPPING);
        assert(!member_is_in_world(member) ||
               member->start.generation == round->generation);
    }
    assert(memcmp(counts, round->counts, sizeof counts) == 0);
    assert(missing == round->missing_survivors);
    assert(asked == round->asked_count && round->is_undecided == (asked > 0));
    assert(!round->is_undecided || round->state == ROUND_STOPPING);
    in_world = counts[MEMBER_RUNNING] + counts[MEMBER_SUCCEEDED] +
               counts[MEMBER_STOPPING] + counts[MEMBER_LEAVING];
    assert(in_world <= round->world_count);
    switch (round->state) {
    case ROUND_FORMING: assert(in_world == 0 && !round->outcome); break;
    case ROUND_RUNNING:
        assert(counts[MEMBER_STOPPING] == 0 && counts[MEMBER_LEAVING] == 0);
        assert(counts[MEMBER_RUNNING] > 0 && round->generation > 0);
        break;
    case ROUND_STOPPING:
        assert(counts[MEMBER_RUNNING] == 0 && counts[MEMBER_SUCCEEDED] == 0);
        assert(in_world > 0);
        break;
    case ROUND_CLOSED: assert(round->outcome != 0); break;
    }
}
#else
static void check_invariants(const struct round *round)
{
    (void)round; /* O(N) a step: for debug builds */
}
#endif

static void on_command(struct round *round, const struct round_command *command,
                       uint64_t now_ms)
{
    struct member *member = member_find(&round->members, command->id);

    round->waited_ms = command->waited_ms;
    round->rtt_ms = command->rtt_ms;
    switch (command->kind) {
    case ROUND_ADD: break;
    case ROUND_MESSAGE:
        if (member)
            round_on_message(round, member, command->message, now_ms);
        break;
    case ROUND_GONE:
        if (member)
            round_part(round, member, command, now_ms);
        break;
    case ROUND_TICK: tick(round, now_ms); break;
    case ROUND_RESUME: break;
    case ROUND_DIRECT:
        if (member)
            round_take_direct(round, member, now_ms);
        break;
    case ROUND_PAUSED:
        if (member)
            round_take_paused(round, member, now_ms);
        break;
    case ROUND_SILENT:
        if (member)
            round_expire(round, member, now_ms);
        break;
    }
}

int round_step(struct round *round, const struct round_command *command,
               uint64_t now_ms)
{
    bool is_heartbeat = command->kind == ROUND_MESSAGE &&
                        command->message->kind == CT_MESSAGE_HEARTBEAT;
    int rc = 0;

    round->action_count = 0;
    if (command->kind == ROUND_ADD)
        return add(round, command->link, now_ms);
    if (command->kind == ROUND_RESUME)
        rc = round_resume(round, command, now_ms);
    else
        on_command(round, command, now_ms);
    round_send_waiting_if_due(round, now_ms);
    round_close_if_succeeded(round);
    if (round->members.count == 0 && !round_is_deserted(round))
        round_push(round, ROUND_FORGET);
    else if (!is_heartbeat) /* thousands a second, and they change no state */
        check_invariants(round);
    return rc;
}
