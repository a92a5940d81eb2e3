/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/limits.h"
#include "rendezvous/master.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* Actions of one step: per member at most START, STOP, VERDICT, WAITING, DROP; and a few that
 * are not about a member. Reserved when a member is added, so that no later step can fail. */
enum {
    ACTIONS_PER_MEMBER = 6,
    ACTIONS_BESIDES = 16
};

static const bool edges[4][4] = {
    [ROUND_FORMING] = {[ROUND_RUNNING] = true, [ROUND_CLOSED] = true},
    [ROUND_RUNNING] = {[ROUND_STOPPING] = true, [ROUND_CLOSED] = true},
    [ROUND_STOPPING] = {[ROUND_FORMING] = true, [ROUND_CLOSED] = true},
    [ROUND_CLOSED] = {false},
};

static void start_if_complete(struct round *round, uint64_t now_ms);
static void finish_stopping(struct round *round, uint64_t now_ms);

/* ---- Life -------------------------------------------------------------------------------- */

int round_create(struct round **out, const struct round_settings *settings)
{
    struct round *round;

    if (settings->min_nodes < 1 || settings->max_nodes < settings->min_nodes ||
        settings->max_nodes > ROUND_NODES_MAX || settings->lost_after_ms == 0)
        return -EINVAL;
    if (!(round = ct_zalloc(sizeof *round)))
        return -ENOMEM;
    round->settings = *settings;
    round->join_deadline_ms = UINT64_MAX;
    round->last_call_ms = UINT64_MAX;
    round->waiting_due_ms = UINT64_MAX;
    lease_queue_init(&round->leases, settings->lost_after_ms);
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
static uint64_t deadline(uint64_t now_ms, uint64_t timeout_ms)
{
    return timeout_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + timeout_ms;
}

/* ---- Actions and states ------------------------------------------------------------------ */

static int reserve(struct round *round)
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
    if (round->scratch_capacity < 2 * members) {
        struct member **list = ct_realloc_array(round->scratch, 4 * members,
                                                sizeof *list);

        if (!list)
            return -ENOMEM;
        round->scratch = list;
        round->scratch_capacity = 4 * members;
    }
    return 0;
}

static struct round_action *push(struct round *round, enum round_action_kind kind)
{
    struct round_action *action = &round->actions[round->action_count++];

    assert(round->action_count <= round->action_capacity);
    *action = (struct round_action){.kind = kind};
    return action;
}

static void push_to(struct round *round, enum round_action_kind kind,
                    const struct member *member)
{
    struct round_action *action = push(round, kind);

    action->id = member->link.id;
    action->peer = member->link.peer;
}

static void change_state(struct round *round, enum round_state to, const char *why)
{
    struct round_action *action = push(round, ROUND_CHANGED);
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

static bool is_missing_survivor(const struct member *member)
{
    return member->is_survivor && member->state == MEMBER_CONNECTED;
}

static void change_member(struct round *round, struct member *member,
                          enum member_state to)
{
    round->counts[member->state]--;
    round->missing_survivors -= is_missing_survivor(member);
    member->state = to;
    round->counts[member->state]++;
    round->missing_survivors += is_missing_survivor(member);
}

static void set_survivor(struct round *round, struct member *member, bool is_survivor)
{
    round->missing_survivors -= is_missing_survivor(member);
    member->is_survivor = is_survivor;
    round->missing_survivors += is_missing_survivor(member);
}

static void remove_member(struct round *round, struct member *member)
{
    round->counts[member->state]--;
    round->missing_survivors -= is_missing_survivor(member);
    member_remove(&round->members, member->link.id);
}

/* ---- The end of a run -------------------------------------------------------------------- */

static void close_run(struct round *round, const char *why)
{
    struct ct_verdict *verdict = &round->verdict;

    change_state(round, ROUND_CLOSED, why);
    *verdict = (struct ct_verdict){
        .generation = round->generation,
        .outcome = round->outcome,
        .exit_code = round->exit_code,
        .restart_count = round->restart_count,
    };
    if (round->outcome != CT_OUTCOME_SUCCEEDED)
        verdict->failure_count = failures_copy(&round->failures, verdict->failures,
                                               CT_FAILURES_MAX);
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state != MEMBER_LEAVING && member->state != MEMBER_LEFT)
            push_to(round, ROUND_SEND_VERDICT, member);
    }
}

static void decide(struct round *round, enum ct_outcome outcome, uint8_t exit_code)
{
    round->outcome = (uint8_t)outcome;
    round->exit_code = exit_code;
}

/* Who is here and who is not, as the first line of a verdict that gives up waiting. */
static void add_timeout_failure(struct round *round)
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
    struct host_list joined = {0};
    char here[CT_REASON_MAX / 3], away[CT_REASON_MAX / 3];

    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state == MEMBER_READY)
            host_list_add(&joined, member->link.host);
        else if (member->state == MEMBER_CONNECTED)
            host_list_add(&round->missing, member->link.host);
    }
    host_list_format(&joined, here, sizeof here);
    host_list_format(&round->missing, away, sizeof away);
    (void)ct_format(failure.text, sizeof failure.text,
                    "%zu of %u nodes joined in %.1f s; joined: %s; missing: %s",
                    round->counts[MEMBER_READY], round->settings.min_nodes,
                    (double)round->settings.join_timeout_ms / 1000,
                    here[0] ? here : "none",
                    away[0] ? away : "nodes that never connected"); /* cut is fine */
    failures_add(&round->failures, &failure);
}

static void give_up_waiting(struct round *round)
{
    decide(round, round->generation ? CT_OUTCOME_NODES_LOST : CT_OUTCOME_JOIN_TIMEOUT,
           CT_EXIT_RETRY);
    add_timeout_failure(round);
    close_run(round, "join deadline");
}

/* ---- Forming ----------------------------------------------------------------------------- */

/* Something that people wait for changed: tell all, but not more often than they can read. */
static void announce(struct round *round, uint64_t now_ms)
{
    uint64_t due_ms = round->waiting_sent_ms + ROUND_WAITING_EVERY_MS;

    if (round->waiting_sent_ms == 0 || due_ms < now_ms)
        due_ms = now_ms;
    round->waiting_due_ms = due_ms;
}

static void describe_waiting(struct round *round, uint64_t now_ms)
{
    struct host_list away = round->missing;

    round->waiting = (struct ct_waiting){
        .joined = (uint32_t)round->counts[MEMBER_READY],
        .min_nodes = round->settings.min_nodes,
        .max_nodes = round->settings.max_nodes,
        .left_ms = round->join_deadline_ms > now_ms ? round->join_deadline_ms - now_ms
                                                    : 0,
    };
    for (size_t i = 0; i < round->members.count && round->missing_survivors > 0; i++) {
        if (is_missing_survivor(round->members.list[i]))
            host_list_add(&away, round->members.list[i]->link.host);
    }
    host_list_format(&away, round->waiting.missing, sizeof round->waiting.missing);
}

static void send_waiting_if_due(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_FORMING || now_ms < round->waiting_due_ms)
        return;
    describe_waiting(round, now_ms);
    for (size_t i = 0; i < round->members.count; i++) {
        if (round->members.list[i]->state == MEMBER_READY)
            push_to(round, ROUND_SEND_WAITING, round->members.list[i]);
    }
    round->waiting_due_ms = UINT64_MAX;
    round->waiting_sent_ms = now_ms;
}

static void begin_forming(struct round *round, uint64_t now_ms)
{
    change_state(round, ROUND_FORMING, "all have stopped");
    round->join_deadline_ms = deadline(now_ms, round->settings.join_timeout_ms);
    round->waiting_sent_ms = 0;
    if (round->counts[MEMBER_READY] > 0)
        announce(round, now_ms);
    start_if_complete(round, now_ms);
}

static void fill_start(struct round *round, struct member **world, size_t count)
{
    char master[CT_HOST_MAX];
    uint16_t port = round->settings.endpoint_port;

    master_choose(master, world, count);
    if (port == 0)
        port = world[0]->join.store_port;
    for (size_t i = 0; i < count; i++) {
        struct ct_start *start = &world[i]->start;

        start->generation = round->generation;
        start->restart_count = round->restart_count;
        start->master_port = port;
        memcpy(start->master_addr, master, sizeof master);
    }
    member_assign_ranks(world, count, world + count);
}

static void tell_standby(struct round *round, const struct member *member)
{
    round->waiting = (struct ct_waiting){
        .joined = round->world_count,
        .min_nodes = round->settings.min_nodes,
        .max_nodes = round->settings.max_nodes,
        .is_standby = 1,
    };
    push_to(round, ROUND_SEND_WAITING, member);
}

static void start_world(struct round *round, uint64_t now_ms, const char *why)
{
    struct member **world = round->scratch;
    size_t count = member_choose(&round->members, round->settings.max_nodes, world);

    assert(count >= round->settings.min_nodes);
    change_state(round, ROUND_RUNNING, why);
    round->generation++;
    round->world_count = (uint32_t)count;
    round->is_finishing = false;
    round->started_ms = now_ms;
    round->join_deadline_ms = UINT64_MAX;
    failures_clear(&round->failures);
    host_list_clear(&round->missing);
    fill_start(round, world, count);
    for (size_t i = 0; i < round->members.count; i++)
        set_survivor(round, round->members.list[i], false);
    for (size_t i = 0; i < count; i++) {
        set_survivor(round, world[i], true);
        change_member(round, world[i], MEMBER_RUNNING);
        world[i]->step = -1;
        push_to(round, ROUND_SEND_START, world[i]);
    }
    for (size_t i = 0; i < round->members.count; i++) {
        if (round->members.list[i]->state == MEMBER_READY)
            tell_standby(round, round->members.list[i]);
    }
}

static void start_if_complete(struct round *round, uint64_t now_ms)
{
    size_t ready = round->counts[MEMBER_READY];

    if (round->state != ROUND_FORMING || now_ms < round->fence_ms)
        return;
    if (ready < round->settings.min_nodes) {
        round->last_call_ms = UINT64_MAX;
        return;
    }
    if (round->generation > 0) {
        if (round->missing_survivors == 0)
            start_world(round, now_ms, "all are back");
        return;
    }
    if (ready >= round->settings.max_nodes) {
        start_world(round, now_ms, "full");
        return;
    }
    if (round->last_call_ms == UINT64_MAX)
        round->last_call_ms = deadline(now_ms, round->settings.last_call_ms);
    if (now_ms >= round->last_call_ms)
        start_world(round, now_ms, "last call over");
}

/* ---- Stopping ---------------------------------------------------------------------------- */

static void stop_world(struct round *round, enum ct_stop_reason reason,
                       const struct ct_failure *cause, uint64_t now_ms)
{
    change_state(round, ROUND_STOPPING,
                 cause ? ct_cause_name(cause->cause) : "membership");
    round->join_deadline_ms = deadline(now_ms, round->settings.join_timeout_ms);
    round->stop = (struct ct_stop){
        .generation = round->generation,
        .reason = (uint8_t)reason,
        .is_final = round->outcome != 0,
        .restart_count = round->restart_count,
        .max_restarts = round->settings.max_restarts,
    };
    if (cause)
        round->stop.cause = *cause;
    for (size_t i = 0; i < round->members.count; i++) {
        struct member *member = round->members.list[i];

        if (member->state != MEMBER_RUNNING && member->state != MEMBER_SUCCEEDED)
            continue;
        change_member(round, member, MEMBER_STOPPING);
        push_to(round, ROUND_SEND_STOP, member);
    }
    finish_stopping(round, now_ms);
}

/* The next state, once no worker of this world can be alive any more. */
static void finish_stopping(struct round *round, uint64_t now_ms)
{
    if (round->state != ROUND_STOPPING || round->counts[MEMBER_STOPPING] > 0 ||
        round->counts[MEMBER_LEAVING] > 0)
        return;
    if (round->outcome)
        close_run(round, "all have stopped");
    else
        begin_forming(round, now_ms);
}

/* A worker failed on its own account. Only the first one of a round decides anything. */
static void fail(struct round *round, const struct ct_failure *failure, uint64_t now_ms)
{
    bool is_unkillable = failure->cause == CT_CAUSE_UNKILLABLE;

    failures_add(&round->failures, failure);
    if (round->state == ROUND_STOPPING && is_unkillable && !round->outcome)
        decide(round, CT_OUTCOME_FAILED, failures_exit_code(failure));
    if (round->state != ROUND_RUNNING)
        return;
    if (!is_unkillable && round->restart_count < round->settings.max_restarts)
        round->restart_count++;
    else
        decide(round, CT_OUTCOME_FAILED, failures_exit_code(failure));
    stop_world(round, CT_STOP_FAILURE, failure, now_ms);
}

/* ---- Messages ---------------------------------------------------------------------------- */

static void lose(struct round *round, struct member *member, const char *reason,
                 uint64_t now_ms);

static void refuse(struct round *round, struct member *member, int code,
                   const char *text, uint64_t now_ms)
{
    round->refuse = (struct ct_refuse){.code = code, .version = CT_FRAME_VERSION};
    (void)ct_copy(round->refuse.text, sizeof round->refuse.text,
                  text); /* our own words */
    push_to(round, ROUND_SEND_REFUSE, member);
    lose(round, member, text, now_ms);
}

/* NULL, or what is wrong with this JOIN. */
static const char *check_join(const struct round *round, const struct member *member,
                              const struct ct_join *join)
{
    if (member->state != MEMBER_CONNECTED && member->state != MEMBER_READY)
        return "JOIN before STOPPED";
    if (join->slots < 1 || join->slots > ROUND_SLOTS_MAX)
        return "JOIN with an impossible number of workers";
    if (join->store_port == 0 && round->settings.endpoint_port == 0)
        return "JOIN without a store port";
    return NULL;
}

static void on_join(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_join *join = &message->join;
    const char *wrong = check_join(round, member, join);

    if (round->state == ROUND_CLOSED)
        return; /* it crossed the verdict */
    if (wrong) {
        refuse(round, member, CTRUN_E_PROTOCOL, wrong, now_ms);
        return;
    }
    if (round->has_fingerprint && round->fingerprint != join->fingerprint) {
        refuse(
            round, member, CTRUN_E_FINGERPRINT,
            "this node was not started like the others: program, arguments and options "
            "must be the same on all nodes",
            now_ms);
        return;
    }
    round->has_fingerprint = true;
    round->fingerprint = join->fingerprint;
    member->join = *join;
    change_member(round, member, MEMBER_READY);
    host_list_remove(&round->missing, member->link.host);
    if (round->state == ROUND_FORMING) {
        if (round->join_deadline_ms == UINT64_MAX)
            round->join_deadline_ms = deadline(now_ms, round->settings.join_timeout_ms);
        announce(round, now_ms);
        start_if_complete(round, now_ms);
    } else if (round->state == ROUND_RUNNING) {
        if (round->world_count < round->settings.max_nodes && !round->is_finishing)
            stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
        else
            tell_standby(round, member);
    }
}

static void on_heartbeat(struct round *round, struct member *member,
                         const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms; /* the lease was renewed already, as by every message */
    if (message->heartbeat.generation == round->generation)
        member->step = message->heartbeat.step;
}

static void on_failure(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_failure *failure = &message->failure;

    if (failure->generation != round->generation || !member_is_in_world(member))
        return;
    fail(round, failure, now_ms);
}

/* The answer to STOP; without one the node stopped by itself (it heard nothing of us). */
static void on_stopped(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_stopped *stopped = &message->stopped;

    if (stopped->generation != round->generation || !member_is_in_world(member))
        return;
    change_member(round, member,
                  member->state == MEMBER_LEAVING ? MEMBER_LEFT : MEMBER_CONNECTED);
    for (uint8_t i = 0; i < stopped->failure_count; i++) {
        if (stopped->failures[i].cause == CT_CAUSE_STOPPED)
            failures_add(&round->failures, &stopped->failures[i]);
        else if (stopped->failures[i].cause != CT_CAUSE_NONE)
            fail(round, &stopped->failures[i], now_ms);
    }
    if (round->state == ROUND_RUNNING)
        stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    else
        finish_stopping(round, now_ms);
}

static void close_if_succeeded(struct round *round)
{
    if (round->state != ROUND_RUNNING || !round->is_finishing ||
        round->counts[MEMBER_RUNNING] > 0)
        return;
    decide(round, CT_OUTCOME_SUCCEEDED, CT_EXIT_OK);
    close_run(round, "all succeeded");
}

static void on_succeeded(struct round *round, struct member *member,
                         const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms;
    if (message->succeeded.generation != round->generation ||
        member->state != MEMBER_RUNNING)
        return; /* when STOPPING it counts for nothing: everyone runs again */
    change_member(round, member, MEMBER_SUCCEEDED);
    round->is_finishing = true;
    close_if_succeeded(round);
}

/* The fingerprint is that of the nodes that are here: it goes with the last of them. */
static void forget_fingerprint(struct round *round)
{
    if (round->generation == 0 && round->counts[MEMBER_READY] == 0)
        round->has_fingerprint = false;
}

static void on_leave(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    enum member_state before = member->state;

    (void)
        message; /* its reason is for the log; its generation cannot matter: it leaves */
    set_survivor(round, member, false);
    switch (before) {
    case MEMBER_RUNNING:
    case MEMBER_STOPPING: change_member(round, member, MEMBER_LEAVING); break;
    case MEMBER_CONNECTED:
    case MEMBER_READY:
    case MEMBER_SUCCEEDED: change_member(round, member, MEMBER_LEFT); break;
    case MEMBER_LEAVING:
    case MEMBER_LEFT: return;
    }
    forget_fingerprint(round);
    if (before == MEMBER_RUNNING)
        stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    else if (round->state == ROUND_FORMING)
        announce(round, now_ms);
    start_if_complete(round, now_ms);
}

static void on_close(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    struct ct_failure failure = {
        .generation = round->generation,
        .cause = CT_CAUSE_AGENT,
        .rank = -1,
        .local_rank = -1,
        .node_rank = -1,
        .step = -1,
    };

    if (round->state == ROUND_CLOSED || round->outcome)
        return;
    (void)ct_copy(failure.host, sizeof failure.host, member->link.host);
    (void)ct_copy(failure.text, sizeof failure.text, message->close.reason);
    failures_add(&round->failures, &failure);
    decide(round, CT_OUTCOME_CLOSED, message->close.exit_code);
    if (round->state == ROUND_RUNNING)
        stop_world(round, CT_STOP_CLOSED, NULL, now_ms);
    else if (round->state == ROUND_FORMING)
        close_run(round, "closed by a member");
}

static void on_message(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    typedef void message_fn(struct round *, struct member *, const struct ct_message *,
                            uint64_t);
    static message_fn *const table[] = {
        [CT_MESSAGE_JOIN] = on_join,           [CT_MESSAGE_HEARTBEAT] = on_heartbeat,
        [CT_MESSAGE_FAILURE] = on_failure,     [CT_MESSAGE_STOPPED] = on_stopped,
        [CT_MESSAGE_SUCCEEDED] = on_succeeded, [CT_MESSAGE_LEAVE] = on_leave,
        [CT_MESSAGE_CLOSE] = on_close,
    };
    size_t kind = (size_t)message->kind;

    lease_renew(&round->leases, &member->lease, now_ms);
    member->heard_ms = now_ms;
    if (kind < sizeof table / sizeof table[0] && table[kind])
        table[kind](round, member, message, now_ms);
    else
        refuse(round, member, CTRUN_E_PROTOCOL, "a message that agents do not send",
               now_ms);
}

/* ---- Coming, going, time ----------------------------------------------------------------- */

static int add(struct round *round, const struct member_link *link, uint64_t now_ms)
{
    struct member *member;

    if (reserve(round) < 0 || !(member = member_add(&round->members, link)))
        return -ENOMEM;
    round->counts[MEMBER_CONNECTED]++;
    member->heard_ms = now_ms;
    lease_start(&round->leases, &member->lease, now_ms);
    return 0;
}

static struct ct_failure describe_loss(const struct round *round,
                                       const struct member *member, const char *reason,
                                       uint64_t now_ms)
{
    struct ct_failure failure = {
        .generation = round->generation,
        .cause = CT_CAUSE_NODE_LOST,
        .rank = -1,
        .local_rank = -1,
        .node_rank = (int32_t)member->start.group_rank,
        .restart_count = round->restart_count,
        .uptime_ms = now_ms - round->started_ms,
        .step = member->step,
    };

    (void)ct_copy(failure.host, sizeof failure.host, member->link.host);
    (void)ct_copy(failure.text, sizeof failure.text, reason);
    return failure;
}

/* The workers of a node whose connection broke may still be alive: its agent, cut off, ends
 * them before the lease that we last gave it is over. No world starts before that. */
static void raise_fence(struct round *round, uint64_t heard_ms)
{
    uint64_t fence_ms = deadline(heard_ms, round->settings.lost_after_ms);

    if (fence_ms > round->fence_ms)
        round->fence_ms = fence_ms;
}

/* A member is gone without a word. What that means depends on what it owed the world. */
static void lose(struct round *round, struct member *member, const char *reason,
                 uint64_t now_ms)
{
    enum member_state before = member->state;
    struct ct_failure failure = describe_loss(round, member, reason, now_ms);
    bool was_owed = before == MEMBER_RUNNING || before == MEMBER_STOPPING ||
                    (member->is_survivor && before != MEMBER_SUCCEEDED);
    bool is_missed = before == MEMBER_READY || was_owed;
    uint64_t heard_ms = member->heard_ms;

    remove_member(round, member);
    forget_fingerprint(round);
    if (round->state == ROUND_CLOSED)
        return;
    if (was_owed)
        failures_add(&round->failures, &failure);
    if (before == MEMBER_RUNNING || before == MEMBER_STOPPING)
        raise_fence(round, heard_ms);
    if (is_missed)
        host_list_add(&round->missing, failure.host);
    if (before == MEMBER_RUNNING) {
        stop_world(round, CT_STOP_NODE_LOST, &failure, now_ms);
        return;
    }
    finish_stopping(round, now_ms);
    if (round->state == ROUND_FORMING && is_missed)
        announce(round, now_ms);
    start_if_complete(round, now_ms);
}

static void expire(struct round *round, struct member *member, uint64_t now_ms)
{
    char reason[CT_REASON_MAX];

    (void)ct_format(reason, sizeof reason, "nothing heard for %.1f s, no goodbye",
                    (double)(now_ms - member->heard_ms) / 1000);
    push_to(round, ROUND_DROP, member);
    lose(round, member, reason, now_ms);
}

/* Members that beat but never say that their workers are gone must not hold the run. */
static void give_up_stopping(struct round *round, uint64_t now_ms)
{
    size_t i = round->members.count;

    while (i-- > 0 && round->state == ROUND_STOPPING) {
        struct member *member = round->members.list[i];

        if (!member_is_in_world(member))
            continue;
        push_to(round, ROUND_DROP, member);
        lose(round, member, "its workers did not end in time", now_ms);
    }
}

static void tick(struct round *round, uint64_t now_ms)
{
    struct lease *lease;

    while ((lease = lease_find_expired(&round->leases, now_ms)))
        expire(round, ct_list_entry(lease, struct member, lease), now_ms);
    if (now_ms >= round->fence_ms)
        round->fence_ms = 0;
    if (round->state == ROUND_STOPPING && now_ms >= round->join_deadline_ms)
        give_up_stopping(round, now_ms);
    start_if_complete(round, now_ms);
    if (round->state != ROUND_FORMING || now_ms < round->join_deadline_ms ||
        now_ms < round->fence_ms)
        return;
    if (round->counts[MEMBER_READY] >= round->settings.min_nodes)
        start_world(round, now_ms, "join deadline");
    else
        give_up_waiting(round);
}

static void earlier(uint64_t *next_ms, uint64_t candidate_ms)
{
    if (candidate_ms < *next_ms)
        *next_ms = candidate_ms;
}

uint64_t round_next_ms(const struct round *round)
{
    uint64_t next_ms = lease_next_ms(&round->leases);

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

/* What holds after every step, whatever was thrown at it. */
static void check_invariants(const struct round *round)
{
    size_t counts[MEMBER_LEFT + 1] = {0};
    size_t missing = 0, in_world;

    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        counts[member->state]++;
        missing += is_missing_survivor(member);
        assert(!member_is_in_world(member) ||
               member->start.generation == round->generation);
    }
    assert(memcmp(counts, round->counts, sizeof counts) == 0);
    assert(missing == round->missing_survivors);
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
    (void)in_world;
}

static void on_command(struct round *round, const struct round_command *command,
                       uint64_t now_ms)
{
    struct member *member = member_find(&round->members, command->id);

    switch (command->kind) {
    case ROUND_ADD: break;
    case ROUND_MESSAGE:
        if (member)
            on_message(round, member, command->message, now_ms);
        break;
    case ROUND_GONE:
        if (member)
            lose(round, member, command->reason, now_ms);
        break;
    case ROUND_TICK: tick(round, now_ms); break;
    }
}

int round_step(struct round *round, const struct round_command *command,
               uint64_t now_ms)
{
    bool is_heartbeat = command->kind == ROUND_MESSAGE &&
                        command->message->kind == CT_MESSAGE_HEARTBEAT;

    round->action_count = 0;
    if (command->kind == ROUND_ADD)
        return add(round, command->link, now_ms);
    on_command(round, command, now_ms);
    send_waiting_if_due(round, now_ms);
    close_if_succeeded(round);
    if (round->members.count == 0)
        push(round, ROUND_FORGET);
    else if (
        !is_heartbeat) /* it changes no state, and there are thousands of them a second */
        check_invariants(round);
    return 0;
}
