/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of members, and what follows from each. */
#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/role.h"

static void refuse_unlike(struct round *round, struct member *member, uint64_t now_ms)
{
    char text[CT_REASON_MAX];

    (void)ct_format(
        text, sizeof text,
        "this node was not started like the others: compare --nnodes, "
        "--max-restarts, --rdzv-backend, --jax, --survive and " CT_ENV_NO_SHARED_STORE
        "; the run has --nnodes=%u:%u "
        "--max-restarts=%u (its other settings are not known here)",
        round->settings.min_nodes, round->settings.max_nodes,
        round->settings.max_restarts); /* fits */
    round_refuse(round, member, CTRUN_E_FINGERPRINT, text, now_ms);
}

static bool is_waited_for(const struct member *member)
{
    return member->state == MEMBER_CONNECTED || member->state == MEMBER_READY;
}

/* ---- Two jobs at one endpoint --------------------------------------------------------------- */

static bool has_joined(const struct member *member)
{
    return member->join.slots > 0 && !member->is_away && member->state != MEMBER_LEFT;
}

/* True if the member has the same role and has reported its program. */
static bool is_comparable(const struct member *member, const struct ct_join *join)
{
    return *member->link.job.program && strcmp(member->join.role, join->role) == 0;
}

/* False if both programs are known and differ, by name or content, or the users do. Nodes of several roles may have
 * other programs each. After a reload the files of nodes that have joined are those of the new command, and a newcomer's
 * is not. */
static bool is_same_job(const struct round *round, const struct member *member,
                        const struct member *newcomer, const struct ct_join *join)
{
    const struct ct_job *theirs = &member->link.job, *ours = &newcomer->link.job;
    const bool knows_files = round->reload.number == 0 && join->roles.count == 0 &&
                             member->join.program && join->program;

    return strcmp(theirs->program, ours->program) == 0 &&
           strcmp(theirs->user, ours->user) == 0 &&
           (!knows_files || member->join.program == join->program);
}

/* A member of another job than this node's; NULL: none. The first comparable member decides:
 * thousands of nodes join at once, and none of them may look at all others. */
static const struct member *find_other_job(const struct round *round,
                                           const struct member *newcomer,
                                           const struct ct_join *join)
{
    const struct ct_job *job = &newcomer->link.job;
    const bool is_alone = round->settings.max_nodes == 1 && job->is_alone;

    if (!is_alone && !*job->program)
        return NULL;
    member_for_each(member, &round->members) {
        if (member == newcomer || !has_joined(member))
            continue;
        if (is_alone)
            return member;
        if (is_comparable(member, join))
            return is_same_job(round, member, newcomer, join) ? NULL : member;
    }
    return NULL;
}

static void describe_job(char *dst, size_t size, const struct ct_job *job)
{
    if (*job->program)
        (void)ct_format(dst, size, "'%s' of %s", job->program, job->user);
    else
        (void)ct_copy(dst, size, "a job");
}

static void refuse_other_job(struct round *round, struct member *newcomer,
                             const struct member *member, uint64_t now_ms)
{
    char text[CT_REASON_MAX], theirs[128], ours[128];

    describe_job(theirs, sizeof theirs, &member->link.job);
    describe_job(ours, sizeof ours, &newcomer->link.job);
    if (round->settings.max_nodes == 1 && newcomer->link.job.is_alone)
        (void)ct_format(
            text, sizeof text,
            "%s was started on %s as a job of one node and is at this endpoint; "
            "--nnodes was not given here, so this is another job of one node: give "
            "all nodes of a job the same --nnodes, and each job an endpoint of its own",
            theirs, member->link.host); /* fits */
    else
        (void)ct_format(
            text, sizeof text,
            "%s was started on %s and is at this endpoint; here %s%s was started: give "
            "each job an endpoint of its own, or the nodes of one job the same "
            "--rdzv-id",
            theirs, member->link.host, strcmp(theirs, ours) == 0 ? "another file " : "",
            ours); /* fits */
    round_refuse(round, newcomer, CTRUN_E_OTHER_JOB, text, now_ms);
}

/* NULL, or why this JOIN breaks the protocol. Its numbers are used as sizes later: the limits are
 * checked only here. */
static const char *check_join(const struct round *round, const struct member *member,
                              const struct ct_join *join)
{
    if (!is_waited_for(member))
        return "JOIN before STOPPED";
    if (join->slots < 1 || join->slots > ROUND_SLOTS_MAX)
        return "JOIN with an impossible number of workers";
    if (!ct_role_list_is_sound(&join->roles, join->slots))
        return "JOIN with roles that are not those of its workers";
    if (member->join.slots > 0 && member->join.roles.count != join->roles.count)
        return "JOIN with other roles than before";
    if (join->store_port == 0 && round->settings.endpoint_port == 0)
        return "JOIN without a store port";
    return NULL;
}

static void on_join(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_join *join = message->join;
    const char *wrong = check_join(round, member, join);
    const bool is_repeated = member->joins_again;
    const struct member *other;

    member->joins_again = false;
    if (round->state == ROUND_CLOSED || (is_repeated && !is_waited_for(member)))
        return; /* the JOIN crossed the verdict or the START */
    if (wrong) {
        round_refuse(round, member, CTRUN_E_PROTOCOL, wrong, now_ms);
        return;
    }
    if (round->has_fingerprint && round->fingerprint != join->fingerprint) {
        refuse_unlike(round, member, now_ms);
        return;
    }
    if (!member->is_excluded && round_is_broken_host(round, member->link.host)) {
        round_refuse(round, member, CTRUN_E_EXCLUDED, round_broken_text, now_ms);
        return;
    }
    if (member->join.slots == 0 && (other = find_other_job(round, member, join))) {
        refuse_other_job(round, member, other, now_ms);
        return;
    }
    /* The first JOIN sets the fingerprint; it is forgotten while no world has started and no member
     * is ready. */
    round->has_fingerprint = true;
    round->fingerprint = join->fingerprint;
    if (member->join.slots == 0)
        round_send_limits(round, member);
    member->join = *join;
    round_change_member(round, member, MEMBER_READY);
    round_send_reload(round, member);
    host_list_remove(&round->missing, member->link.host);
    contacts_remove(&round->contacts, member->link.host);
    if (round->state != ROUND_STOPPING && member->is_excluded) {
        round_refuse_excluded(round, member, now_ms);
    } else if (round->state == ROUND_FORMING) {
        if (round->join_deadline_ms == UINT64_MAX)
            round->join_deadline_ms = ct_deadline_after(
                now_ms, round->settings.join_timeout_ms);
        round_announce(round, now_ms);
        round_start_if_complete(round, now_ms);
    } else if (round->state == ROUND_RUNNING) {
        if (round_has_place(round, member))
            return; /* it gets the place at the end of this step, or when the loss is settled */
        if (round_has_wrong_size(round) && !round->is_finishing)
            round_stop_to_grow(round, now_ms);
        else
            round_send_spare(round, member);
    }
}

static void on_heartbeat(struct round *round, struct member *member,
                         const struct ct_message *message, uint64_t now_ms)
{
    const uint64_t quiet_ms = message->heartbeat->quiet_ms;

    /* The lease was renewed already: every message does this. */
    if (message->heartbeat->generation != round->generation)
        return;
    member->step = message->heartbeat->step;
    member->moved_ms = quiet_ms > 0 && quiet_ms < now_ms ? now_ms - quiet_ms : 0;
}

/* True if a worker elsewhere has made progress since the reported rank was seen stuck: this rank
 * only waits for others, which its node cannot see. */
static bool has_moved(const struct round *round, const struct member *reporter,
                      const struct ct_failure *failure, uint64_t now_ms)
{
    if (failure->cause != CT_CAUSE_HANG || failure->age_ms == 0)
        return false;
    member_for_each(member, &round->members) {
        if (member != reporter && member->state == MEMBER_RUNNING &&
            member->moved_ms > 0 && now_ms - member->moved_ms < failure->age_ms)
            return true;
    }
    return false;
}

static void on_reload(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms)
{
    const uint8_t step = message->reload->step;

    if (step == CT_RELOAD_ASK || step == CT_RELOAD_ANSWER || step == CT_RELOAD_TAKE)
        round_on_reload(round, member, message, now_ms);
    else
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a RELOAD message with a step that agents do not send", now_ms);
}

static void on_samples(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms;
    if (message->samples->generation == round->generation && member_is_in_world(member))
        poison_add(&round->poison, message->samples);
}

/* True for a consequence of a failure, or no failure: no reason to stop a world. */
static bool is_no_failure(const struct ct_failure *failure)
{
    return failure->cause == CT_CAUSE_NONE || failure->cause == CT_CAUSE_STOPPED ||
           failure->cause == CT_CAUSE_EARLY || failure->cause == CT_CAUSE_ENDED;
}

/* True for a newcomer in a lost node's place that no other rank has met yet: its failure does not
 * concern the others. */
static bool is_unmet(const struct round *round, const struct member *member)
{
    return round->state == ROUND_RUNNING && member->state == MEMBER_RUNNING &&
           member->start.is_new && round_is_outside(round, member);
}

static void refuse_unmet(struct round *round, struct member *member,
                         const struct ct_failure *failure, uint64_t now_ms)
{
    char text[CT_REASON_MAX];

    (void)ct_format(
        text, sizeof text,
        "this node was started in the place of a lost one and failed before "
        "the other ranks took it into their world; they continue without "
        "it: %s",
        failure->text); /* cut is fine */
    round_refuse(round, member, CTRUN_E_CHANGED, text, now_ms);
}

static void on_failure(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_failure *failure = message->failure;

    if (is_no_failure(failure)) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a FAILURE message without a failure", now_ms);
        return;
    }
    if (failure->generation != round->generation || !member_is_in_world(member) ||
        has_moved(round, member, failure, now_ms))
        return;
    if (is_unmet(round, member) && failure->cause != CT_CAUSE_UNKILLABLE) {
        refuse_unmet(round, member, failure, now_ms);
        return;
    }
    round_add_failure(round, failure, now_ms);
    round_fail(round, member, failure, now_ms);
}

static void on_stopping(struct round *round, struct member *member,
                        const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms;
    if (message->stopping->generation != round->generation)
        return;
    round_wait_for_grace(round, message->stopping->grace_ms);
    round_on_answer(round, member);
}

/* A member that has sent LEAVE ends its connection itself; any other joins again as a new
 * member. */
static void lose_unmet(struct round *round, struct member *member, uint64_t now_ms)
{
    if (!member->is_survivor)
        return;
    round_push_to(round, ROUND_DROP, member);
    round->actions[round->action_count - 1].why = "its workers have ended";
    round_lose(round, member, "its workers have ended", now_ms);
}

/* Workers that cannot be killed first: after another failure the next round could begin. */
static void fail_all(struct round *round, struct member *member,
                     const struct ct_stopped *stopped, uint64_t now_ms)
{
    const struct ct_failure *failures = stopped->failures;

    for (uint8_t i = 0; i < stopped->failure_count; i++)
        round_add_failure(round, &failures[i], now_ms);
    for (uint8_t i = 0; i < stopped->failure_count; i++)
        if (failures[i].cause == CT_CAUSE_UNKILLABLE)
            round_fail(round, member, &failures[i], now_ms);
    for (uint8_t i = 0; i < stopped->failure_count; i++)
        if (failures[i].cause != CT_CAUSE_UNKILLABLE && !is_no_failure(&failures[i]))
            round_fail(round, member, &failures[i], now_ms);
}

static bool has_unkillable(const struct ct_stopped *stopped)
{
    for (uint8_t i = 0; i < stopped->failure_count; i++)
        if (stopped->failures[i].cause == CT_CAUSE_UNKILLABLE)
            return true;
    return false;
}

/* The answer to STOP. Without a STOP the node stopped by itself, because it heard nothing from
 * us. */
static void on_stopped(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_stopped *stopped = message->stopped;

    if (stopped->generation != round->generation || !member_is_in_world(member))
        return;
    if (is_unmet(round, member) && !has_unkillable(stopped)) {
        lose_unmet(round, member, now_ms);
        return;
    }
    round_change_member(round, member,
                        member->state == MEMBER_LEAVING ? MEMBER_LEFT
                                                        : MEMBER_CONNECTED);
    failures_add_more(&round->failures, &stopped->more);
    hang_views_add(&round->hang_views, stopped, member->start.world_size);
    fail_all(round, member, stopped, now_ms);
    round_on_answer(round, member);
    if (round->state != ROUND_RUNNING) {
        round_finish_stopping(round, now_ms);
        return;
    }
    if (member->state == MEMBER_CONNECTED) /* it stopped first and gets STOP too */
        round_change_member(round, member, MEMBER_RUNNING);
    round_stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    if (member->state == MEMBER_STOPPING) {
        round_change_member(round, member, MEMBER_CONNECTED);
        round_finish_stopping(round, now_ms);
    }
}

void round_close_if_succeeded(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_RUNNING || !round->is_finishing ||
        round_count_inside(round) > 0)
        return;
    if (round->survive_due_ms > 0) { /* the lost node's ranks have not finished */
        round_give_up_surviving(round, now_ms);
        return;
    }
    round_decide(round, CT_OUTCOME_SUCCEEDED, CT_EXIT_OK);
    round_close(round, "all succeeded");
}

/* --survive: if a node without ranks in the world succeeds, the run is not finished. */
static bool has_ranks(const struct round *round, const struct member *member)
{
    for (uint32_t i = 0; i < member->join.slots; i++)
        if (!round_has_rank(round->lost, member->start.rank_base + i))
            return true;
    return false;
}

/* True if nothing of the world is left that could go on or has succeeded. An agent reports the
 * failure of the last rank of the world instead. */
static bool is_end_of_nothing(const struct round *round, const struct member *member)
{
    return !round->is_finishing && !has_ranks(round, member) &&
           !round_is_outside(round, member) && round_count_inside(round) == 1;
}

static void on_succeeded(struct round *round, struct member *member,
                         const struct ct_message *message, uint64_t now_ms)
{
    if (message->succeeded->generation != round->generation ||
        member->state != MEMBER_RUNNING)
        return; /* ignored when STOPPING: all ranks run again */
    if (is_end_of_nothing(round, member)) {
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a SUCCEEDED message though all ranks of the world are lost",
                     now_ms);
        return;
    }
    round_change_member(round, member, MEMBER_SUCCEEDED);
    round->is_finishing |= has_ranks(round, member);
    round_close_if_succeeded(round, now_ms); /* first: no world of newcomers alone */
    if (round->state == ROUND_RUNNING)
        round_leave_world(round, member, now_ms);
}

static void note_leaver(struct round *round, const struct member *member,
                        const char *reason, uint64_t now_ms)
{
    char why[CONTACTS_WHY_MAX];

    (void)ct_format(why, sizeof why, "it has left%s%s", *reason ? ": " : "",
                    reason); /* cut is fine */
    contacts_note(&round->contacts, member->link.host, NULL, why, true, now_ms);
}

static void on_leave(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    enum member_state before = member->state;
    const struct ct_failure leaver = round_name_node(round, member, CT_CAUSE_NONE,
                                                     message->leave->reason);

    /* The generation of the message does not matter: the node leaves in any case. */
    round_set_survivor(round, member, false);
    round_drop_offer(round, member, "leaves the run");
    if (is_unmet(round, member)) {
        member->link.key = 0; /* it cannot resume: lost when its connection ends */
        round_leave_world(round, member, now_ms);
        return;
    }
    switch (before) {
    case MEMBER_RUNNING:
    case MEMBER_STOPPING:
        round_change_member(round, member, MEMBER_LEAVING);
        round_on_answer(round, member);
        break;
    case MEMBER_CONNECTED:
    case MEMBER_READY:
    case MEMBER_SUCCEEDED: round_change_member(round, member, MEMBER_LEFT); break;
    case MEMBER_LEAVING:
    case MEMBER_LEFT: return;
    }
    note_leaver(round, member, message->leave->reason, now_ms);
    round_forget_fingerprint(round);
    if (before == MEMBER_RUNNING && round->state == ROUND_RUNNING) /* not over */
        round_stop_world(round, CT_STOP_MEMBERSHIP, &leaver, now_ms);
    else if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

void round_on_message(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms)
{
    typedef void message_fn(struct round *, struct member *, const struct ct_message *,
                            uint64_t);
    static message_fn *const table[] = {
        [CT_MESSAGE_JOIN] = on_join,
        [CT_MESSAGE_HEARTBEAT] = on_heartbeat,
        [CT_MESSAGE_FAILURE] = on_failure,
        [CT_MESSAGE_STOPPED] = on_stopped,
        [CT_MESSAGE_SUCCEEDED] = on_succeeded,
        [CT_MESSAGE_LEAVE] = on_leave,
        [CT_MESSAGE_STOPPING] = on_stopping,
        [CT_MESSAGE_RESIZE] = round_on_resize,
        [CT_MESSAGE_DRAIN] = round_on_drain,
        [CT_MESSAGE_RESTART] = round_on_restart,
        [CT_MESSAGE_REACHABILITY] = round_on_reachability,
        [CT_MESSAGE_RELOAD] = on_reload,
        [CT_MESSAGE_SAMPLES] = on_samples,
        [CT_MESSAGE_LOSS] = round_on_loss,
        [CT_MESSAGE_STILL] = round_on_still,
        [CT_MESSAGE_GROW] = round_on_grow,
    };
    size_t kind = (size_t)message->kind;

    round->is_end = message->kind == CT_MESSAGE_STOPPED;
    round_renew(round, member, now_ms);
    if (kind < sizeof table / sizeof table[0] && table[kind])
        table[kind](round, member, message, now_ms);
    else
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a message that agents do not send", now_ms);
}
