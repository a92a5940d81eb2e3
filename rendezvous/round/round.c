/* SPDX-License-Identifier: Apache-2.0 */
/* The step: one command in, a list of actions out; and the invariants after each step. No clock,
 * socket or thread: the caller has them (session/run.c), or simulates them (tests/sim). */
#include "rendezvous/round/round.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/alloc.h"

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
    ct_lease_queue_init(&round->away, settings->lost_after_ms / 5 < ROUND_AWAY_MAX_MS
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
    free(round->actions);
    free(round->scratch);
    free(round);
}

bool round_is_deserted(const struct round *round)
{
    return round->members.count == 0 && round->state != ROUND_CLOSED &&
           (round->fence_ms > 0 ||
            (round->settings.is_kept && (round->generation > 0 || round->floor > 0)));
}

void round_give_up(struct round *round)
{
    round->fence_ms = 0;
}

void round_succeed(struct round *round, const struct round *deserted)
{
    round->settings.instance = deserted->settings.instance;
    round->restart_count = deserted->restart_count;
    round->fence_ms = round->held_ms = deserted->fence_ms;
    if (round->settings.exclude_after > 0)
        memcpy(round->faults, deserted->faults, sizeof round->faults);
}

/* ---- Coming, time ------------------------------------------------------------------------ */

static int add(struct round *round, const struct member_link *link, uint64_t now_ms)
{
    struct member *member;

    if (round_reserve(round) < 0 || !(member = member_add(&round->members, link)))
        return -ENOMEM;
    round->counts[MEMBER_CONNECTED]++;
    round_renew(round, member, now_ms);
    return 0;
}

/* The order matters: a member that is lost by now must not count as ready, and only
 * a world that could not start gives up. */
static void tick(struct round *round, uint64_t now_ms)
{
    round_expire_leases(round, now_ms);
    round_expire_away(round, now_ms);
    round_expire_offer(round, now_ms);
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

    earlier(&next_ms, ct_lease_next_ms(&round->away));
    if (round->offer.number > 0)
        earlier(&next_ms, round->offer_deadline_ms);
    switch (round->state) {
    case ROUND_FORMING:
        earlier(&next_ms, round->waiting_due_ms);
        if (round->fence_ms > 0) { /* other deadlines come after it */
            earlier(&next_ms, round->fence_ms);
            break;
        }
        earlier(&next_ms, round->join_deadline_ms);
        earlier(&next_ms, round->last_call_ms);
        break;
    case ROUND_STOPPING: earlier(&next_ms, round->join_deadline_ms); break;
    case ROUND_RUNNING:
        if (round->ranks_fence_ms > 0)
            earlier(&next_ms, round->ranks_fence_ms);
        if (round->survive_due_ms > 0)
            earlier(&next_ms, round->survive_due_ms);
        if (round->newcomer_due_ms > 0)
            earlier(&next_ms, round->newcomer_due_ms);
        if (round->fence_ms > 0 && round->counts[MEMBER_READY] > 0)
            earlier(&next_ms, round->fence_ms); /* for round_take_newcomer() */
        break;
    case ROUND_CLOSED: break;
    }
    return next_ms;
}

/* ---- Step -------------------------------------------------------------------------------- */

#ifndef NDEBUG
/* The invariants after every step, for any command. */
static void check_invariants(const struct round *round)
{
    size_t counts[MEMBER_LEFT + 1] = {0};
    size_t missing = 0, asked = 0, in_world;

    member_for_each(member, &round->members) {
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

/* An unknown id is no error: the member may have been removed while its last message was on its
 * way. */
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
            round_on_direct(round, member, now_ms);
        break;
    case ROUND_PAUSED:
        if (member)
            round_on_paused(round, member, now_ms);
        break;
    case ROUND_SILENT:
        if (member)
            round_expire(round, member, now_ms);
        break;
    }
}

/* The caller has executed the actions of the step before: the list is emptied. */
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
    round_settle_loss(round, now_ms);
    round_take_newcomer(round, now_ms);
    round_send_waiting_if_due(round, now_ms);
    round_close_if_succeeded(round, now_ms);
    if (round->members.count == 0 && !round_is_deserted(round))
        round_push(round, ROUND_FORGET);
    else if (!is_heartbeat) /* thousands a second, and they change no state */
        check_invariants(round);
    return rc;
}
