/* SPDX-License-Identifier: Apache-2.0 */
/* Silent members, and members without a connection: those whose connection broke, which may resume
 * for a while, and all members after a restart of the server. */
#include <errno.h>

#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* ---- Silence ----------------------------------------------------------------------------- */

/* When a member was last heard from, and what its silence means.
 *
 *     heard ──4/5 of a lease──> PEER sent ──1/5──> unsure ──SILENT──> lost
 *       ▲                          ▲                  │ PAUSED
 *       └───── any message ────────┴──────────────────┘ (until pause_ms is over)
 *
 * Only a direct member can be unsure: its kernel acknowledges to ours, with no proxy in between.
 * Others are lost when their lease is over. */
static void probe(struct round *round, struct member *member, uint64_t now_ms)
{
    if (!member->is_away) { /* without a connection nothing can be sent */
        member->probed_ms = now_ms;
        round_push_to(round, ROUND_SEND_PEER, member);
    }
    ct_lease_renew(&round->probes, &member->lease, now_ms);
}

void round_on_paused(struct round *round, struct member *member, uint64_t now_ms)
{
    if (now_ms >= ct_deadline_after(member->received_ms, round->settings.pause_ms)) {
        round_expire(round, member, now_ms);
        return;
    }
    member->is_paused = true;
    probe(round, member, now_ms);
    round_start_if_complete(round, now_ms);
}

void round_expire_leases(struct round *round, uint64_t now_ms)
{
    struct ct_lease *lease;

    while ((lease = ct_lease_find_expired(&round->leases, now_ms)))
        round_expire(round, round_member_of(lease), now_ms);
    while ((lease = ct_lease_find_expired(&round->probes, now_ms))) {
        struct member *member = round_member_of(lease);

        ct_lease_end(lease);
        if (member->is_away)
            round_expire(round, member, now_ms);
        else
            ct_list_add(&round->unsure, &lease->node);
    }
    while ((lease = ct_lease_find_expired(&round->direct_leases, now_ms)))
        probe(round, round_member_of(lease), now_ms);
}

/* ---- Broken connections ------------------------------------------------------------------ */

/* True if the member has a place in a world that it would lose. Any other member simply joins
 * again. */
static bool has_place(const struct member *member)
{
    return member_is_in_world(member) ||
           (member->is_survivor && member->state != MEMBER_LEFT);
}

/* Members of a closed round close their connections themselves once they have the verdict. */
void round_part(struct round *round, struct member *member,
                const struct round_command *command, uint64_t now_ms)
{
    if (member->link.key == 0 || !has_place(member) ||
        (round->state == ROUND_CLOSED && !command->is_owed)) {
        round_lose(round, member, command->reason, now_ms);
        return;
    }
    member->is_away = true;
    round_drop_offer(round, member, "is not connected at this moment");
    member->link.peer = NULL;
    (void)ct_format(member->parted, sizeof member->parted, "%s",
                    command->reason); /* cut is fine */
    ct_lease_start(&round->away, &member->away, now_ms);
    if (member->state != MEMBER_READY)
        return;
    round_change_member(round, member, MEMBER_CONNECTED); /* it joins again */
    if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
}

void round_expire_away(struct round *round, uint64_t now_ms)
{
    struct ct_lease *lease;

    while ((lease = ct_lease_find_expired(&round->away, now_ms))) {
        struct member *member = ct_list_entry(lease, struct member, away);
        char reason[sizeof member->parted];

        memcpy(reason, member->parted, sizeof reason);
        round_lose(round, member, reason, now_ms);
        round_send_owed_spares(round);
    }
}

/* ---- Coming back ------------------------------------------------------------------------- */

/* True if the START of the member's last world was lost on the way: no worker of this world was
 * ever alive there. */
static bool is_unstarted(const struct member *member, const struct ct_resume *resume)
{
    return resume->generation < member->start.generation;
}

/* True if what the agent reports in RESUME agrees with what we know. A RESUME on a connection that
 * the agent has given up may reach us after the one on its next connection, on which it got a
 * START: then the old RESUME is out of date. */
static bool is_possible(const struct member *member, const struct ct_resume *resume)
{
    enum member_state state = member->state;

    if (resume->attempt < member->resume_attempt)
        return false;
    if (resume->generation > member->start.generation || state == MEMBER_LEFT)
        return false;
    if (is_unstarted(member, resume) && resume->state != CT_RESUME_JOINING)
        return false;
    switch (resume->state) {
    case CT_RESUME_JOINING: return true;
    case CT_RESUME_RUNNING:
        return state == MEMBER_RUNNING || state == MEMBER_STOPPING ||
               state == MEMBER_LEAVING;
    case CT_RESUME_STOPPING:
    case CT_RESUME_STOPPED:
    case CT_RESUME_SUCCEEDED: return state != MEMBER_READY;
    default: return false;
    }
}

/* The new connection replaces the old one, which may still be open. */
static void switch_link(struct round *round, struct member *member,
                        const struct member_link *link, uint64_t now_ms)
{
    const uint64_t id = member->link.id, key = member->link.key;

    if (!member->is_away) {
        round_push_to(round, ROUND_DROP, member);
        round->actions[round->action_count - 1].why =
            "the agent resumed on another connection";
    }
    ct_lease_end(&member->away);
    member->is_away = false;
    member->link = *link;
    member->link.id = id;
    member->link.key = key;
    member->is_direct = false; /* until this connection is proven to be direct, too */
    round_renew(round, member, now_ms);
}

static void stop_unstarted(struct round *round, struct member *member, uint64_t now_ms)
{
    round_change_member(round, member, MEMBER_CONNECTED);
    round_on_answer(round, member);
    round_finish_stopping(round, now_ms);
}

/* Sends what the member missed while it was away. */
static void repay(struct round *round, const struct member *member,
                  const struct ct_resume *resume)
{
    const bool is_stopped = round->stop.generation == round->generation &&
                            resume->generation == round->generation;

    if (round->state == ROUND_CLOSED)
        round_push_to(round, ROUND_SEND_VERDICT, member);
    else if (member->state == MEMBER_RUNNING && is_unstarted(member, resume)) {
        round_push_to(round, ROUND_SEND_START, member);
        round_send_world(round, member);
    } else if (member->state == MEMBER_RUNNING)
        round_send_world(round, member);
    else if (is_stopped &&
             (member->state == MEMBER_STOPPING || member->state == MEMBER_CONNECTED ||
              member->state == MEMBER_READY))
        round_push_to(round, ROUND_SEND_STOP, member);
}

int round_resume(struct round *round, const struct round_command *command,
                 uint64_t now_ms)
{
    const struct ct_resume *resume = command->message->resume;
    struct member *member = member_find(&round->members, command->id);
    bool has_run;

    if (!member || resume->key == 0 || member->link.key != resume->key)
        return -ENOENT;
    round_raise_floor(round, resume->generation); /* our journal had a gap */
    if (!is_possible(member, resume))
        return -ENOENT;
    switch_link(round, member, command->link, now_ms);
    member->resume_attempt = resume->attempt;
    member->joins_again = resume->state == CT_RESUME_JOINING;
    has_run = member->state == MEMBER_RUNNING || !is_unstarted(member, resume);
    round->resumed = (struct ct_resumed){
        .generation = has_run ? member->start.generation : resume->generation,
        .is_in_world = has_run && member_is_in_world(member),
    };
    round_push_to(round, ROUND_SEND_RESUMED, member);
    member->sent_reload = 0; /* RELOAD may have been lost on the way */
    round_send_reload(round, member);
    round_send_limits(round, member); /* so may RESIZE */
    if (!has_run && member_is_in_world(member))
        stop_unstarted(round, member, now_ms);
    else
        repay(round, member, resume);
    round_send_owed_spares(round);
    return 0;
}

/* ---- Restart ----------------------------------------------------------------------------- */

static bool is_world(const struct round *round)
{
    const size_t *counts = round->counts;
    size_t in_world = counts[MEMBER_RUNNING] + counts[MEMBER_SUCCEEDED] +
                      counts[MEMBER_STOPPING] + counts[MEMBER_LEAVING];

    if (in_world > round->world_count || round->generation == 0 ||
        round->world.losses > round->loss.losses ||
        (round->loss.losses + round->world.epoch > 0 &&
         round->world.generation != round->generation) ||
        round->is_undecided != (round->asked_count > 0) ||
        (round->is_undecided &&
         (round->state != ROUND_STOPPING || !failures_get_root(&round->failures))))
        return false;
    switch (round->state) {
    case ROUND_FORMING: return in_world == 0 && !round->outcome;
    case ROUND_RUNNING:
        return counts[MEMBER_STOPPING] + counts[MEMBER_LEAVING] == 0 &&
               counts[MEMBER_RUNNING] > 0;
    case ROUND_STOPPING:
        return counts[MEMBER_RUNNING] + counts[MEMBER_SUCCEEDED] == 0 && in_world > 0;
    case ROUND_CLOSED: return round->outcome != 0;
    }
    return false;
}

static bool restore_member(struct round *round, struct member *member,
                           uint64_t served_ms, uint64_t lease_ms)
{
    if (member->state == MEMBER_READY)
        member->state = MEMBER_CONNECTED; /* it joins again */
    if (member->state == MEMBER_LEFT ||
        (member->is_asked && member->state != MEMBER_STOPPING) ||
        member->start.generation != round->generation)
        return false;
    member->is_away = true;
    member->link.peer = NULL;
    round_renew(round, member, lease_ms);
    member->received_ms = served_ms;
    round->counts[member->state]++;
    round->missing_survivors += round_is_missing_survivor(member);
    round->asked_count += member->is_asked;
    return true;
}

int round_restore(struct round *round, uint64_t served_ms, uint64_t now_ms)
{
    const uint64_t spent_ms = round->settings.lost_after_ms / 10 * 3;
    const uint64_t lease_ms = ct_deadline_after(served_ms, spent_ms) > now_ms
                                  ? served_ms
                                  : now_ms - spent_ms;

    if (round_reserve(round) < 0) /* the journal may have no member */
        return -ENOMEM;
    memset(round->counts, 0, sizeof round->counts);
    round->missing_survivors = round->asked_count = 0;
    member_for_each(it, &round->members) {
        if (!restore_member(round, it, served_ms, lease_ms))
            return -EBADMSG;
    }
    round->started_ms = round->stopping_ms = now_ms;
    round_hold(round, served_ms);
    if (round->state != ROUND_RUNNING)
        round->join_deadline_ms = ct_deadline_after(now_ms,
                                                    round->settings.join_timeout_ms);
    round_restore_loss(round, now_ms);
    return is_world(round) ? 0 : -EBADMSG;
}
