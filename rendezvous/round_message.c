/* SPDX-License-Identifier: Apache-2.0 */
/* What a member says, and what follows from it. */
#include "rendezvous/limits.h"
#include "rendezvous/round_private.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/role.h"

void round_refuse(struct round *round, struct member *member, int code,
                  const char *text, uint64_t now_ms)
{
    round->refuse = (struct ct_refuse){.code = code, .version = CT_FRAME_VERSION};
    (void)ct_copy(round->refuse.text, sizeof round->refuse.text,
                  text); /* our own words */
    round_push_to(round, ROUND_SEND_REFUSE, member);
    round_lose(round, member, text, now_ms);
}

static void refuse_unlike(struct round *round, struct member *member, uint64_t now_ms)
{
    char text[CT_REASON_MAX];

    (void)ct_format(text, sizeof text,
                    "this node was not started like the others: compare --nnodes, "
                    "--max-restarts and --rdzv-backend; the run has --nnodes=%u:%u "
                    "--max-restarts=%u",
                    round->settings.min_nodes, round->settings.max_nodes,
                    round->settings.max_restarts); /* fits */
    round_refuse(round, member, CTRUN_E_FINGERPRINT, text, now_ms);
}

/* NULL, or what is wrong with this JOIN. */
static const char *check_join(const struct round *round, const struct member *member,
                              const struct ct_join *join)
{
    if (member->state != MEMBER_CONNECTED && member->state != MEMBER_READY)
        return "JOIN before STOPPED";
    if (join->slots < 1 || join->slots > ROUND_SLOTS_MAX)
        return "JOIN with an impossible number of workers";
    if (!ct_role_list_is_sound(&join->roles, join->slots))
        return "JOIN with roles that are not those of its workers";
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
        round_refuse(round, member, CTRUN_E_PROTOCOL, wrong, now_ms);
        return;
    }
    if (round->has_fingerprint && round->fingerprint != join->fingerprint) {
        refuse_unlike(round, member, now_ms);
        return;
    }
    round->has_fingerprint = true;
    round->fingerprint = join->fingerprint;
    member->join = *join;
    round_change_member(round, member, MEMBER_READY);
    host_list_remove(&round->missing, member->link.host);
    if (round->state == ROUND_FORMING && member->is_excluded) {
        round_refuse_excluded(round, now_ms);
    } else if (round->state == ROUND_FORMING) {
        if (round->join_deadline_ms == UINT64_MAX)
            round->join_deadline_ms = round_deadline(now_ms,
                                                     round->settings.join_timeout_ms);
        round_announce(round, now_ms);
        round_start_if_complete(round, now_ms);
    } else if (round->state == ROUND_RUNNING) {
        if (round_has_wrong_size(round) && !round->is_finishing)
            round_stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
        else
            round_tell_standby(round, member);
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
    round_fail(round, member, failure, now_ms);
}

static void on_stopping(struct round *round, struct member *member,
                        const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms;
    if (message->stopping.generation == round->generation)
        round_take_answer(round, member);
}

/* The answer to STOP; without one the node stopped by itself (it heard nothing of us). */
static void on_stopped(struct round *round, struct member *member,
                       const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_stopped *stopped = &message->stopped;

    if (stopped->generation != round->generation || !member_is_in_world(member))
        return;
    round_change_member(round, member,
                        member->state == MEMBER_LEAVING ? MEMBER_LEFT
                                                        : MEMBER_CONNECTED);
    for (uint8_t i = 0; i < stopped->failure_count; i++) {
        if (stopped->failures[i].cause == CT_CAUSE_STOPPED ||
            stopped->failures[i].cause == CT_CAUSE_EARLY)
            round_add_failure(round, &stopped->failures[i], now_ms);
        else if (stopped->failures[i].cause != CT_CAUSE_NONE)
            round_fail(round, member, &stopped->failures[i], now_ms);
    }
    round_take_answer(round, member);
    if (round->state != ROUND_RUNNING) {
        round_finish_stopping(round, now_ms);
        return;
    }
    if (member->state == MEMBER_CONNECTED) /* it ended first and is told what follows */
        round_change_member(round, member, MEMBER_RUNNING);
    round_stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    if (member->state == MEMBER_STOPPING) {
        round_change_member(round, member, MEMBER_CONNECTED);
        round_finish_stopping(round, now_ms);
    }
}

void round_close_if_succeeded(struct round *round)
{
    if (round->state != ROUND_RUNNING || !round->is_finishing ||
        round->counts[MEMBER_RUNNING] > 0)
        return;
    round_decide(round, CT_OUTCOME_SUCCEEDED, CT_EXIT_OK);
    round_close(round, "all succeeded");
}

static void on_succeeded(struct round *round, struct member *member,
                         const struct ct_message *message, uint64_t now_ms)
{
    (void)now_ms;
    if (message->succeeded.generation != round->generation ||
        member->state != MEMBER_RUNNING)
        return; /* when STOPPING it counts for nothing: everyone runs again */
    round_change_member(round, member, MEMBER_SUCCEEDED);
    round->is_finishing = true;
    round_close_if_succeeded(round);
}

static void on_leave(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    enum member_state before = member->state;
    const struct ct_failure leaver = round_name_node(round, member, CT_CAUSE_NONE,
                                                     message->leave.reason);

    /* The generation of the message cannot matter: it leaves. */
    round_set_survivor(round, member, false);
    allegiance_release(&round->allegiance, member->claim.key);
    switch (before) {
    case MEMBER_RUNNING:
    case MEMBER_STOPPING:
        round_change_member(round, member, MEMBER_LEAVING);
        round_take_answer(round, member);
        break;
    case MEMBER_CONNECTED:
    case MEMBER_READY:
    case MEMBER_SUCCEEDED: round_change_member(round, member, MEMBER_LEFT); break;
    case MEMBER_LEAVING:
    case MEMBER_LEFT: return;
    }
    round_forget_fingerprint(round);
    if (before == MEMBER_RUNNING)
        round_stop_world(round, CT_STOP_MEMBERSHIP, &leaver, now_ms);
    else if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

static void on_close(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_failure failure = round_name_node(round, member, CT_CAUSE_AGENT,
                                                      message->close.reason);

    if (round->state == ROUND_CLOSED || round->outcome)
        return;
    failures_add(&round->failures, &failure);
    round_decide(round, CT_OUTCOME_CLOSED, message->close.exit_code);
    if (round->state == ROUND_RUNNING)
        round_stop_world(round, CT_STOP_CLOSED, NULL, now_ms);
    else if (round->state == ROUND_FORMING)
        round_close(round, "closed by a member");
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
        [CT_MESSAGE_CLOSE] = on_close,
        [CT_MESSAGE_STOPPING] = on_stopping,
        [CT_MESSAGE_RESIZE] = round_on_resize,
        [CT_MESSAGE_DRAIN] = round_on_drain,
        [CT_MESSAGE_CLAIM] = round_on_claim,
        [CT_MESSAGE_ECHO] = round_on_echo,
        [CT_MESSAGE_RESTART] = round_on_restart,
    };
    size_t kind = (size_t)message->kind;

    round_renew(round, member, now_ms);
    if (kind < sizeof table / sizeof table[0] && table[kind])
        table[kind](round, member, message, now_ms);
    else
        round_refuse(round, member, CTRUN_E_PROTOCOL,
                     "a message that agents do not send", now_ms);
}
