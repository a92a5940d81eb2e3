/* SPDX-License-Identifier: Apache-2.0 */
/* Members that are removed without LEAVE: lost, refused, excluded; and the end of worlds. Both are
 * in one file because each calls the other: a loss may end a world, the end of a world begins the
 * next one, and its begin may refuse another member. Each turn removes a member, so the recursion
 * ends. */
#include "rendezvous/report/host_list.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    JOINED_MAX_BYTES = 256
};

static void remove_member(struct round *round, struct member *member)
{
    round_set_asked(round, member, false);
    round_drop_offer(round, member, "is no longer in the run");
    round->counts[member->state]--;
    round->missing_survivors -= round_is_missing_survivor(member);
    round_push(round, ROUND_REMOVED)->id = member->link.id;
    member_remove(&round->members, member->link.id);
}

/* Adds where the member was, as a fact: "10.1.0.2, ranks 8-15". */
static void add_place(struct ct_failure *failure, const struct member *member)
{
    const uint32_t first = member->start.rank_base;
    const uint32_t last = first + member->join.slots - 1;
    char text[CT_ADDR_TEXT_MAX + 48];

    if (!member_is_in_world(member))
        return;
    if (first == last)
        (void)ct_format(text, sizeof text, "%s, rank %u", member->link.seen_as, first);
    else
        (void)ct_format(text, sizeof text, "%s, ranks %u-%u", member->link.seen_as,
                        first, last);
    (void)ct_facts_add(&failure->facts, CT_FACT_WAS, text); /* the first: it fits */
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

/* ---- The loss of a member ----------------------------------------------------------------- */

/* A member is gone without LEAVE. What follows depends on its state. */
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
    const uint64_t received_ms = member->received_ms;
    const bool is_survived = round_may_survive(round, member);

    if (is_survived)
        round_survive(round, member, &failure, now_ms);
    remove_member(round, member);
    round_forget_fingerprint(round);
    if (before == MEMBER_RUNNING || before == MEMBER_STOPPING ||
        before == MEMBER_LEAVING)
        round_raise_fence(round, fence_ms); /* by then its agent has ended them */
    if (round->state == ROUND_CLOSED)
        return;
    round->lost_count += was_owed;
    if (is_root)
        round_blame_loss(round, &failure);
    else if (was_owed && !is_survived)
        failures_add(&round->failures, &failure);
    if (is_missed)
        host_list_add(&round->missing, failure.host);
    if (is_missed && !contacts_find(&round->contacts, failure.host))
        round_note_absent(round, failure.host, failure.text, false, received_ms,
                          now_ms);
    if (is_survived)
        return;
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
        reason, sizeof reason, "nothing received for %.1f s%s",
        (double)(now_ms - member->received_ms) / 1000,
        member->is_paused
            ? "; its host answered, at least at first, but its agent did not"
            : "");
    if (!member->is_away)
        round_push_to(round, ROUND_DROP, member);
    round_lose(round, member, reason, now_ms);
}

void round_refuse(struct round *round, struct member *member, int code,
                  const char *text, uint64_t now_ms)
{
    round->refuse = (struct ct_refuse){.code = code, .version = CT_FRAME_VERSION};
    (void)ct_copy(round->refuse.text, sizeof round->refuse.text,
                  text); /* our own words */
    round_note_refused(round, member->link.host, NULL, code, now_ms);
    round_push_to(round, ROUND_SEND_REFUSE, member);
    round_lose(round, member, text, now_ms);
}

void round_refuse_excluded(struct round *round, struct member *member, uint64_t now_ms)
{
    char host[CT_HOST_MAX];

    if (!member || member->state != MEMBER_READY)
        return;
    (void)ct_copy(host, sizeof host, member->link.host); /* same size */
    round_set_survivor(round, member, false);
    round_refuse(round, member, CTRUN_E_EXCLUDED,
                 round_is_broken_host(round, host)
                     ? round_broken_text
                     : "this node failed first in two rounds in a row, and a spare has "
                       "taken its place",
                 now_ms);
    host_list_remove(&round->missing, host); /* the run does not wait for this host */
}

/* ---- The end of a world ------------------------------------------------------------------- */

void round_stop_world(struct round *round, enum ct_stop_reason reason,
                      const struct ct_failure *cause, uint64_t now_ms)
{
    round_change_state(round, ROUND_STOPPING,
                       reason == CT_STOP_ASKED     ? "asked for"
                       : reason == CT_STOP_NETWORK ? "a network is cut"
                       : cause && cause->cause     ? ct_cause_name(cause->cause)
                                                   : "membership");
    round->stopping_ms = now_ms;
    round->join_deadline_ms = ct_deadline_after(now_ms,
                                                round->settings.join_timeout_ms);
    round->is_undecided = reason == CT_STOP_UNDECIDED;
    round_fill_stop(round, reason, cause);
    member_for_each(member, &round->members) {
        if (member->state != MEMBER_RUNNING && member->state != MEMBER_SUCCEEDED)
            continue;
        round_change_member(round, member, MEMBER_STOPPING);
        round_set_asked(round, member, round->is_undecided);
        round_push_to(round, ROUND_SEND_STOP, member);
    }
    round_finish_stopping(round, now_ms);
}

void round_stop_to_grow(struct round *round, uint64_t now_ms)
{
    struct ct_failure cause = {.generation = round->generation,
                               .rank = -1,
                               .local_rank = -1,
                               .node_rank = -1,
                               .step = -1};
    struct host_list hosts = {0};
    char names[JOINED_MAX_BYTES];

    member_for_each(member, &round->members)
        if (member->state == MEMBER_READY)
            host_list_add(&hosts, member->link.host);
    host_list_format(&hosts, names, sizeof names);
    (void)ct_facts_add(&cause.facts, CT_FACT_JOINED, names); /* the first: it fits */
    round_stop_world(round, CT_STOP_MEMBERSHIP, &cause, now_ms);
}

static void begin_forming(struct round *round, uint64_t now_ms)
{
    round_change_state(round, ROUND_FORMING, "all have stopped");
    round->join_deadline_ms = ct_deadline_after(now_ms,
                                                round->settings.join_timeout_ms);
    round->waiting_sent_ms = 0;
    round_refuse_excluded(round, round_find_excluded(round), now_ms);
    if (round->counts[MEMBER_READY] > 0)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

/* The next state, once no worker of this world can be alive any more. */
void round_finish_stopping(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_STOPPING || round->counts[MEMBER_STOPPING] > 0 ||
        round->counts[MEMBER_LEAVING] > 0)
        return;
    if (round->outcome)
        round_close(round, "all have stopped");
    else
        begin_forming(round, now_ms);
}
