/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/limits.h"
#include "rendezvous/pause.h"
#include "rendezvous/roster.h"
#include "rendezvous/run_journal.h"
#include "rendezvous/standby.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/takeover.h"

struct run *run_find(const struct dispatch *dispatch, const char *id)
{
    struct ct_list *it;

    ct_list_for_each(it, &dispatch->runs) {
        struct run *run = ct_list_entry(it, struct run, node);

        if (strcmp(run->id, id) == 0)
            return run;
    }
    return NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void run_forget(struct run *run)
{
    struct dispatch *dispatch = run->dispatch;

    ct_info("run forgotten run=%s", run->id);
    ct_list_remove(&run->node);
    dispatch->run_count--;
    standby_keep_allegiance(dispatch, run->round);
    round_destroy(run->round);
    run->round = NULL;
    uv_close((uv_handle_t *)&run->timer, on_timer_closed);
    if (dispatch->on_forget)
        dispatch->on_forget(dispatch->context);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

/* Silence that ends the patience with a paused node. */
static uint64_t pause_after(const struct ct_hello *hello)
{
    const uint64_t lost_after_ms = or_default(hello->lost_after_ms,
                                              ROUND_LOST_AFTER_MS);

    return lost_after_ms > UINT64_MAX / CT_PAUSE_LEASES
               ? UINT64_MAX
               : lost_after_ms * CT_PAUSE_LEASES;
}

static int create_round(struct round **out, const struct dispatch *dispatch,
                        const struct ct_hello *hello)
{
    const struct round_settings settings = {
        .min_nodes = hello->min_nodes,
        .max_nodes = hello->max_nodes,
        .max_restarts = hello->max_restarts,
        .join_timeout_ms = or_default(hello->join_timeout_ms, ROUND_JOIN_TIMEOUT_MS),
        .last_call_ms = hello->last_call_ms,
        .lost_after_ms = or_default(hello->lost_after_ms, ROUND_LOST_AFTER_MS),
        .node_unit = hello->node_unit,
        .pause_ms = pause_after(hello),
        .endpoint_port = dispatch->endpoint_port,
        .self_key = dispatch->self_key,
        .server = dispatch->self_key + dispatch->reign,
        .proof_ms = ct_takeover_proof_ms(
            or_default(hello->lost_after_ms, ROUND_LOST_AFTER_MS),
            or_default(hello->heartbeat_ms, ROUND_HEARTBEAT_MS)),
    };

    return round_create(out, &settings);
}

static void set_heartbeat(struct run *run, const struct ct_hello *hello)
{
    const uint64_t lost_after_ms = run->round->settings.lost_after_ms;

    run->heartbeat_ms = or_default(hello->heartbeat_ms, ROUND_HEARTBEAT_MS);
    if (run->heartbeat_ms < ROUND_HEARTBEAT_MIN_MS)
        run->heartbeat_ms = ROUND_HEARTBEAT_MIN_MS;
    if (run->heartbeat_ms > lost_after_ms / 2)
        run->heartbeat_ms = lost_after_ms / 2; /* one may be late */
}

static void tell_created(const struct run *run)
{
    ct_info("run created run=%s min_nodes=%u max_nodes=%u", run->id,
            run->round->settings.min_nodes, run->round->settings.max_nodes);
}

int run_renew(struct run *run, const struct ct_hello *hello)
{
    struct round *round;
    int rc = create_round(&round, run->dispatch, hello);

    if (rc < 0)
        return rc;
    round_succeed(round, run->round);
    round_take_allegiance(round, &run->round->allegiance);
    round_destroy(run->round);
    run->round = round;
    run->mark.generation = 0; /* kept is the old one, until the new one has a world */
    run->born_ms = ct_now_ms();
    set_heartbeat(run, hello);
    tell_created(run);
    return 0;
}

struct run *run_open(struct dispatch *dispatch, const char *id, struct round *round,
                     uint64_t heartbeat_ms)
{
    struct run *run = ct_zalloc(sizeof *run);

    if (!run)
        return NULL;
    (void)ct_copy(run->id, sizeof run->id, id); /* same size */
    run->round = round;
    run->heartbeat_ms = heartbeat_ms;
    run->dispatch = dispatch;
    run->born_ms = ct_now_ms();
    run->timer_ms = UINT64_MAX;
    run->timer.data = run;
    (void)uv_timer_init(dispatch->pool->loop, &run->timer); /* never fails */
    uv_unref((uv_handle_t *)&run
                 ->timer); /* the loop lives for connections, not for leases */
    ct_list_add(&dispatch->runs, &run->node);
    dispatch->run_count++;
    return run;
}

/* A server before this one may have started a world of this run that we know nothing of: its
 * journal has lost it, or one of its nodes has just said so. */
static void hold_back(struct round *round, const struct dispatch *dispatch,
                      const char *run_id)
{
    uint64_t from_ms = dispatch->held_from_ms;

    if (dispatch->unknown_ms > 0 && strcmp(dispatch->unknown_run_id, run_id) == 0)
        from_ms = dispatch->unknown_ms;
    if (from_ms > 0 && ct_now_ms() - from_ms < round->settings.lost_after_ms)
        round_hold(round, from_ms);
}

struct run *run_create(struct dispatch *dispatch, const struct ct_hello *hello, int *rc)
{
    struct round *round = NULL;
    struct run *run = NULL;

    if ((*rc = create_round(&round, dispatch, hello)) == 0) {
        hold_back(round, dispatch, hello->run_id);
        round_take_allegiance(round, &dispatch->allegiance);
    }
    if (*rc == 0 && !(run = run_open(dispatch, hello->run_id, round, 0)))
        *rc = -ENOMEM;
    if (!run) {
        round_destroy(round);
        return NULL;
    }
    set_heartbeat(run, hello);
    tell_created(run);
    return run;
}

/* ---- Actions ----------------------------------------------------------------------------- */

static void tell_change(const struct run *run, const struct round_action *action)
{
    const struct round *round = run->round;
    struct ct_event event;

    ct_info("round: %s -> %s (%s) run=%s generation=%llu members=%zu",
            round_state_name(action->from), round_state_name(action->to), action->why,
            run->id, (unsigned long long)round->generation, round->members.count);
    ct_event_begin(&event, "round_changed");
    ct_event_str(&event, "run_id", run->id);
    ct_event_str(&event, "from", round_state_name(action->from));
    ct_event_str(&event, "to", round_state_name(action->to));
    ct_event_str(&event, "why", action->why);
    ct_event_int(&event, "generation", (int64_t)round->generation);
    ct_event_int(&event, "restart_count", round->restart_count);
    ct_event_end(&event);
}

static void send_action(struct run *run, const struct round_action *action,
                        enum ct_message_kind kind, const void *body, size_t size)
{
    struct ct_message *out = &run->dispatch->out;

    out->kind = kind;
    memcpy(&out->hello, body, size); /* the union's members share their beginning */
    peer_send(action->peer, out);
}

/* The host of the worker store learns who may use it. */
static void send_roster(struct run *run, const struct round_action *action)
{
    const struct dispatch *dispatch = run->dispatch;
    struct ct_members members;
    struct roster roster;

    roster_init(&roster, run->round);
    while (roster_next(&roster, &members)) {
        if (dispatch->on_members)
            dispatch->on_members(dispatch->context, &members);
        else
            send_action(run, action, CT_MESSAGE_MEMBERS, &members, sizeof members);
    }
}

static void send_waiting(struct run *run, const struct round_action *action)
{
    struct ct_waiting waiting = run->round->waiting;

    waiting.is_standby = (uint8_t)(action->place < UINT8_MAX ? action->place
                                                             : UINT8_MAX);
    send_action(run, action, CT_MESSAGE_WAITING, &waiting, sizeof waiting);
}

/* The member left the round; its connection is still there to be closed. */
static void part(struct peer *peer)
{
    peer->run = NULL;
}

static void send_start(struct run *run, const struct round_action *action)
{
    const struct member *member = member_find(&run->round->members, action->id);

    if (member && member->start.group_rank == 0)
        send_roster(run, action);
    if (member)
        send_action(run, action, CT_MESSAGE_START, &member->start,
                    sizeof member->start);
    standby_send_echo(action->peer);
}

static void execute(struct run *run, const struct round_action *action)
{
    const struct round *round = run->round;

    switch (action->kind) {
    case ROUND_SEND_START: send_start(run, action); break;
    case ROUND_SEND_WAITING: send_waiting(run, action); break;
    case ROUND_SEND_STOP:
        send_action(run, action, CT_MESSAGE_STOP, &round->stop, sizeof round->stop);
        break;
    case ROUND_SEND_VERDICT:
        send_action(run, action, CT_MESSAGE_VERDICT, &round->verdict,
                    sizeof round->verdict);
        break;
    case ROUND_SEND_REFUSE:
        part(action->peer);
        peer_refuse(action->peer, round->refuse.code, round->refuse.text);
        break;
    case ROUND_SEND_RESIZE:
        send_action(run, action, CT_MESSAGE_RESIZE, &round->resize,
                    sizeof round->resize);
        break;
    case ROUND_SEND_DRAIN:
        send_action(run, action, CT_MESSAGE_DRAIN, &round->drain, sizeof round->drain);
        break;
    case ROUND_SEND_DRAINED:
        send_action(run, action, CT_MESSAGE_DRAIN, &round->drained,
                    sizeof round->drained);
        break;
    case ROUND_SEND_RESTART:
        send_action(run, action, CT_MESSAGE_RESTART, &round->restart,
                    sizeof round->restart);
        break;
    case ROUND_SEND_PEER: /* which would keep the workers of a paused node */
        if (round_may_acknowledge(round, action->id, ct_now_ms()))
            pause_send_peer(action->peer);
        break;
    case ROUND_SEND_ROSTER: standby_send_roster(run, action->peer); break;
    case ROUND_SEND_ECHO: standby_send_echo(action->peer); break;
    case ROUND_DROP:
        conn_close(((struct peer *)action->peer)->conn,
                   action->why ? action->why : "it is silent");
        part(action->peer);
        break;
    case ROUND_CHANGED:
        run->dispatch->metrics.rounds_started += action->to == ROUND_RUNNING;
        if (action->to == ROUND_RUNNING && run->dispatch->on_start)
            run->dispatch->on_start(run->dispatch->context);
        tell_change(run, action);
        break;
    case ROUND_SEND_RESUMED:
        send_action(run, action, CT_MESSAGE_RESUMED, &round->resumed,
                    sizeof round->resumed);
        break;
    case ROUND_REMOVED: break;
    case ROUND_FORGET: run_forget(run); break;
    }
}

/* When we were stopped ourselves (SIGSTOP, a suspended machine) everybody's lease is over, and
 * the heartbeats that prove the contrary wait to be read: the loop reads them before it calls
 * the timer again. */
static bool look_again(struct run *run, uint64_t lag_ms)
{
    if (run->has_looked_again || lag_ms < run->heartbeat_ms / 2)
        return false;
    run->has_looked_again = true;
    return true;
}

static void on_timer(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const uint64_t now_ms = ct_now_ms();
    const uint64_t lag_ms = now_ms > run->timer_ms ? now_ms - run->timer_ms : 0;

    metrics_set_lag(&run->dispatch->metrics, lag_ms);
    if (look_again(run, lag_ms)) {
        (void)uv_timer_start(&run->timer, on_timer, 1, 0);
        return;
    }
    run->has_looked_again = false;
    run->timer_ms = UINT64_MAX;
    run_step(run, &(struct round_command){.kind = ROUND_TICK});
}

/* Deadlines mostly move away: the timer is only touched when it would come too late. */
void run_arm_timer(struct run *run)
{
    uint64_t next_ms = round_next_ms(run->round);

    if (next_ms >= run->timer_ms)
        return;
    run->timer_ms = next_ms;
    (void)uv_timer_start(&run->timer, on_timer, (uint64_t)ct_left_ms(next_ms), 0);
}

int run_try(struct run *run, const struct round_command *command)
{
    struct round *round = run->round;
    struct metrics *metrics = &run->dispatch->metrics;
    const uint32_t restarts = round->restart_count;
    const uint64_t lost = round->lost_count;
    int rc = round_step(round, command, ct_now_ms());

    metrics->restarts += round->restart_count - restarts;
    metrics->failures[CT_CAUSE_NODE_LOST] += round->lost_count - lost;
    return rc;
}

/* False when the run is gone. */
static bool execute_all(struct run *run)
{
    const struct round *round = run->round;
    const size_t count = round->action_count;

    if (run_keep(run) < 0) {
        run_abandon(run);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_last = round->actions[i].kind == ROUND_FORGET;

        execute(run, &round->actions[i]);
        if (is_last)
            return false;
    }
    return true;
}

void run_execute(struct run *run)
{
    bool is_there = execute_all(run);
    const struct member *unsure;

    while (is_there && (unsure = round_find_unsure(run->round))) {
        (void)run_try(run, &(struct round_command){.kind = pause_is_acknowledged(unsure)
                                                               ? ROUND_PAUSED
                                                               : ROUND_SILENT,
                                                   .id = unsure->link.id});
        is_there = execute_all(run);
    }
    if (is_there)
        run_arm_timer(run);
}

void run_step(struct run *run, const struct round_command *command)
{
    (void)run_try(run, command); /* only ROUND_ADD and ROUND_RESUME can fail */
    run_execute(run);
}
