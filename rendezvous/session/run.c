/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/run.h"

#include <errno.h>
#include <sys/random.h>

#include "rendezvous/round/round_limits.h"
#include "rendezvous/session/pause.h"
#include "rendezvous/session/peer.h"
#include "rendezvous/session/roster.h"
#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

void runs_init(struct runs *runs)
{
    ct_list_init(&runs->list);
    run_memory_init(&runs->memory);
    runs->began_ms = ct_now_ms();
}

void runs_close(struct runs *runs)
{
    ct_list_for_each_safe(struct run, run, &runs->list, node)
        run_forget(run);
    run_memory_deinit(&runs->memory);
}

struct run *run_find(const struct runs *runs, const char *id)
{
    ct_list_for_each(struct run, run, &runs->list, node) {
        if (strcmp(run->id, id) == 0)
            return run;
    }
    return NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Since when workers of the run may live that a next server does not know of; 0: none. */
static uint64_t outlived_from_ms(const struct run *run)
{
    const uint64_t for_ms = round_outlive_ms(run->round->settings.lost_after_ms);
    const uint64_t last_ms = round_last_worker_ms(run->round);

    if (last_ms <= ct_now_ms())
        return 0;
    return last_ms > for_ms ? last_ms - for_ms : 1;
}

uint64_t runs_outlived_from_ms(const struct runs *runs)
{
    uint64_t from_ms = 0;

    ct_list_for_each(struct run, run, &runs->list, node) {
        const uint64_t its_ms = outlived_from_ms(run);

        if (its_ms > from_ms)
            from_ms = its_ms;
    }
    return runs->is_elected ? 0 : from_ms;
}

/* Destroys the round now; libuv uses the timer until on_timer_closed() frees the run. */
void run_forget(struct run *run)
{
    struct runs *runs = run->all;
    const uint64_t now_ms = ct_now_ms(), last_ms = round_last_worker_ms(run->round);

    ct_log_often(&runs->comings, CTRUN_LOG_INFO, "run forgotten run=%s", run->id);
    if (run->round->state != ROUND_CLOSED)
        run_memory_keep(&runs->memory, run->id, run->round, now_ms);
    if (last_ms >
        now_ms) /* lost nodes have not got the verdict, or the journal failed */
        run_memory_outlive(&runs->memory, run->id, run->round->generation, last_ms,
                           now_ms);
    ct_list_remove(&run->node);
    runs->count--;
    round_destroy(run->round);
    run->round = NULL;
    rank_metrics_clear(&run->metrics);
    rank_metrics_clear(&run->node_metrics);
    uv_close((uv_handle_t *)&run->timer, on_timer_closed);
    if (runs->on_forget)
        runs->on_forget(runs->context);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

/* Silence after which a paused node is lost. */
static uint64_t pause_after(const struct ct_hello *hello)
{
    const uint64_t lost_after_ms = or_default(hello->lost_after_ms,
                                              ROUND_LOST_AFTER_MS);

    return lost_after_ms > UINT64_MAX / CT_PAUSE_LEASES
               ? UINT64_MAX
               : lost_after_ms * CT_PAUSE_LEASES;
}

/* A new instance, unless the agent had workers of this run: then its instance. */
static uint64_t choose_instance(const struct runs *runs, const struct ct_hello *hello)
{
    uint64_t instance;

    if (hello->instance != 0)
        return hello->instance;
    if (getrandom(&instance, sizeof instance, 0) != (ssize_t)sizeof instance)
        instance = ct_now_ns(); /* no random bytes: the present time */
    instance |= 1;              /* 0 would be none */
    return runs->is_in_ctrund ? instance | CT_INSTANCE_AT_CTRUND
                              : instance & ~CT_INSTANCE_AT_CTRUND;
}

/* Another server may have served this run here until this one started, and workers may live that we
 * do not know of. An elected server has the journal. */
static uint64_t choose_founding_ms(const struct runs *runs, uint64_t lost_after_ms)
{
    return runs->is_elected ? 0 : runs->began_ms + round_outlive_ms(lost_after_ms);
}

static int create_round(struct round **out, const struct runs *runs,
                        const struct ct_hello *hello)
{
    const uint64_t lost_after_ms = or_default(hello->lost_after_ms,
                                              ROUND_LOST_AFTER_MS);
    const struct round_settings settings = {
        .instance = choose_instance(runs, hello),
        .found_after_ms = choose_founding_ms(runs, lost_after_ms),
        .is_kept = runs->is_elected,
        .min_nodes = hello->min_nodes,
        .max_nodes = hello->max_nodes,
        .max_restarts = hello->max_restarts,
        .exclude_after = hello->exclude_after,
        .join_timeout_ms = or_default(hello->join_timeout_ms, ROUND_JOIN_TIMEOUT_MS),
        .last_call_ms = hello->last_call_ms,
        .lost_after_ms = lost_after_ms,
        .node_unit = hello->node_unit,
        .pause_ms = pause_after(hello),
        .endpoint_port = runs->endpoint_port,
        .expected = runs->expected,
        .expected_count = runs->expected_count,
        .expected_tasks = runs->expected_tasks,
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
        run->heartbeat_ms = lost_after_ms / 2; /* so that one heartbeat may be late */
}

static void log_created(const struct run *run)
{
    ct_log_often(&run->all->comings, CTRUN_LOG_INFO,
                 "run created run=%s min_nodes=%u max_nodes=%u", run->id,
                 run->round->settings.min_nodes, run->round->settings.max_nodes);
}

/* ctrunctl may have changed them. */
static void keep_limits(struct round *round, const struct round *deserted)
{
    round->settings.min_nodes = deserted->settings.min_nodes;
    round->settings.max_nodes = deserted->settings.max_nodes;
}

int run_renew(struct run *run, const struct ct_hello *hello)
{
    struct round *round;
    int rc = create_round(&round, run->all, hello);

    if (rc < 0)
        return rc;
    round_succeed(round, run->round);
    if (hello->instance == round->settings.instance) /* else of a new launcher */
        keep_limits(round, run->round);
    round_raise_floor(round, run->round->generation);
    round_raise_floor(round, run->round->floor);
    round_destroy(run->round);
    run->round = round;
    run->mark.generation = 0; /* kept is the old round, until the new one has a world */
    run->born_ms = ct_now_ms();
    set_heartbeat(run, hello);
    log_created(run);
    return 0;
}

struct run *run_open(struct runs *runs, const char *id, struct round *round,
                     uint64_t heartbeat_ms)
{
    struct run *run = ct_zalloc(sizeof *run);

    if (!run)
        return NULL;
    (void)ct_copy(run->id, sizeof run->id, id); /* same size */
    run->round = round;
    run->heartbeat_ms = heartbeat_ms;
    run->all = runs;
    run->metrics.all = run->node_metrics.all = &runs->metric_count;
    run->born_ms = ct_now_ms();
    run->timer_ms = UINT64_MAX;
    run->timer.data = run;
    (void)uv_timer_init(runs->loop, &run->timer); /* never fails */
    uv_unref((uv_handle_t *)&run
                 ->timer); /* the loop lives for connections, not for leases */
    ct_list_add(&runs->list, &run->node);
    runs->count++;
    return run;
}

/* Workers of this run may live that this server does not know of: the journal lost a world, or an
 * agent has just reported one. The generations continue above theirs. */
static void hold_back(struct round *round, const struct runs *runs, const char *run_id)
{
    const struct run_memory_entry *known = run_memory_find(&runs->memory, run_id);
    const struct run_memory_lost *lost = run_memory_find_lost(&runs->memory, run_id);
    const uint64_t for_ms = round_outlive_ms(round->settings.lost_after_ms);
    uint64_t from_ms = round->settings.max_nodes >
                       1; /* our machine may have been restarted */
    uint64_t until_ms;

    if (runs->held_from_ms > from_ms)
        from_ms = runs->held_from_ms;
    if (lost->at_ms > from_ms)
        from_ms = lost->at_ms;
    if (known && known->received_ms > from_ms)
        from_ms = known->received_ms;
    until_ms = from_ms > 0 ? ct_deadline_after(from_ms, for_ms) : 0;
    if (known)
        run_memory_restore(known, round);
    if (known && known->until_ms > until_ms) /* their lease may be longer than ours */
        until_ms = known->until_ms;
    if (lost->until_ms > until_ms)
        until_ms = lost->until_ms;
    if (until_ms > ct_now_ms())
        round_hold(round, until_ms > for_ms ? until_ms - for_ms : 0);
}

struct run *run_create(struct runs *runs, const struct ct_hello *hello, int *rc)
{
    struct round *round = NULL;
    struct run *run = NULL;

    if ((*rc = create_round(&round, runs, hello)) == 0)
        hold_back(round, runs, hello->run_id);
    if (*rc == 0 && !(run = run_open(runs, hello->run_id, round, 0)))
        *rc = -ENOMEM;
    if (!run) {
        round_destroy(round);
        return NULL;
    }
    if (runs->has_ha && !runs->is_elected && hello->max_nodes > 1) {
        run->listens_for_ms = RUN_HA_LISTEN_MS;
        run->looked_ms = ct_now_ms();
    }
    set_heartbeat(run, hello);
    log_created(run);
    return run;
}

/* ---- Actions ----------------------------------------------------------------------------- */

/* Agents can cause some events at any rate: too many are left out, and the next event has their
 * number. */
static bool is_event_due(struct run *run, uint64_t *left_out)
{
    return ct_often_is_due(&run->all->events, ct_now_ms(), left_out);
}

static void end_event(struct ct_event *event, uint64_t left_out)
{
    if (left_out > 0)
        ct_event_int(event, "left_out", (int64_t)left_out);
    ct_event_end(event);
}

static void report_paused(struct run *run, const struct member *member)
{
    struct ct_event event;
    uint64_t left_out;

    ct_log_often(&run->all->changes, CTRUN_LOG_WARN,
                 "agent is silent, but its host answers: paused host=%s",
                 member->link.host);
    if (!is_event_due(run, &left_out))
        return;
    ct_event_begin(&event, "member_paused");
    ct_event_str(&event, "run_id", run->id);
    ct_event_str(&event, "host", member->link.host);
    ct_event_int(&event, "generation", (int64_t)member->start.generation);
    end_event(&event, left_out);
}

static void report_change(struct run *run, const struct round_action *action)
{
    const struct round *round = run->round;
    struct ct_event event;
    uint64_t left_out;

    ct_log_often(&run->all->changes, CTRUN_LOG_INFO,
                 "round: %s -> %s (%s) run=%s generation=%llu members=%zu",
                 round_state_name(action->from), round_state_name(action->to),
                 action->why, run->id, (unsigned long long)round->generation,
                 round->members.count);
    if (!is_event_due(run, &left_out))
        return;
    ct_event_begin(&event, "round_changed");
    ct_event_str(&event, "run_id", run->id);
    ct_event_str(&event, "from", round_state_name(action->from));
    ct_event_str(&event, "to", round_state_name(action->to));
    ct_event_str(&event, "why", action->why);
    ct_event_int(&event, "generation", (int64_t)round->generation);
    ct_event_int(&event, "restart_count", round->restart_count);
    end_event(&event, left_out);
}

static void send_action(const struct round_action *action, enum ct_message_kind kind,
                        const void *body)
{
    struct peer *peer = action->peer;
    const struct ct_message out = {kind, .body = body};

    output_commit_send(peer->commit, &peer->outbox, &out);
}

/* Sends the list of nodes that may use the worker store to the agent that has it. */
static void send_roster(struct run *run, const struct round_action *action)
{
    const struct runs *runs = run->all;
    struct ct_members members;
    struct roster roster;

    roster_init(&roster, run->round);
    while (roster_next(&roster, &members)) {
        if (runs->on_members)
            runs->on_members(runs->context, &members);
        else
            send_action(action, CT_MESSAGE_MEMBERS, &members);
    }
}

/* Sends the addresses also to the other agents if one message has room for all: they use it to
 * recognise ranks. */
static void send_hosts(struct run *run, const struct round_action *action)
{
    struct ct_members members;
    struct roster roster;

    if (run->round->world_count > CT_MEMBER_KEYS_MAX)
        return;
    roster_init(&roster, run->round);
    if (roster_next(&roster, &members) && members.is_last)
        send_action(action, CT_MESSAGE_MEMBERS, &members);
}

static void send_members(struct run *run, const struct round_action *action)
{
    const struct member *member = member_find(&run->round->members, action->id);

    if (member && member->start.group_rank == run->round->world.store_node)
        send_roster(run, action);
    else
        send_hosts(run, action);
}

static void send_waiting(struct run *run, const struct round_action *action)
{
    struct ct_waiting waiting = run->round->waiting;

    waiting.is_spare = (uint8_t)(action->place < UINT8_MAX ? action->place : UINT8_MAX);
    send_action(action, CT_MESSAGE_WAITING, &waiting);
}

/* The member left the round; its connection is still open. */
static void part(struct peer *peer)
{
    peer->run = NULL;
}

static void send_start(struct run *run, const struct round_action *action)
{
    const struct member *member = member_find(&run->round->members, action->id);
    struct ct_start start;

    if (member && member->start.group_rank == 0)
        send_roster(run, action);
    if (member && (member->start.group_rank > 0 || run->all->on_members))
        send_hosts(run, action);
    if (member) {
        round_copy_start(&start, run->round, member);
        send_action(action, CT_MESSAGE_START, &start);
    }
}

static void execute(struct run *run, const struct round_action *action)
{
    const struct round *round = run->round;

    switch (action->kind) {
    case ROUND_SEND_START: send_start(run, action); break;
    case ROUND_SEND_WAITING: send_waiting(run, action); break;
    case ROUND_SEND_STOP: send_action(action, CT_MESSAGE_STOP, &round->stop); break;
    case ROUND_SEND_VERDICT:
        send_action(action, CT_MESSAGE_VERDICT, &round->verdict);
        break;
    case ROUND_SEND_REFUSE:
        part(action->peer);
        peer_refuse(action->peer, round->refuse.code, round->refuse.text);
        break;
    case ROUND_SEND_RESIZE:
        send_action(action, CT_MESSAGE_RESIZE, &round->resize);
        break;
    case ROUND_SEND_DRAIN: send_action(action, CT_MESSAGE_DRAIN, &round->drain); break;
    case ROUND_SEND_DRAINED:
        send_action(action, CT_MESSAGE_DRAIN, &round->drained);
        break;
    case ROUND_SEND_RESTART:
        send_action(action, CT_MESSAGE_RESTART, &round->restart);
        break;
    case ROUND_SEND_OFFER: send_action(action, CT_MESSAGE_RELOAD, &round->offer); break;
    case ROUND_SEND_RELOAD:
        send_action(action, CT_MESSAGE_RELOAD, &round->reload);
        break;
    case ROUND_SEND_RELOADED:
        send_action(action, CT_MESSAGE_RELOAD, &round->reloaded);
        break;
    case ROUND_SEND_REACHABILITY:
        send_action(action, CT_MESSAGE_REACHABILITY, &round->reachability);
        break;
    case ROUND_SEND_LOSS: send_action(action, CT_MESSAGE_LOSS, &round->loss); break;
    case ROUND_SEND_MEMBERS: send_members(run, action); break;
    case ROUND_SEND_WORLD: send_action(action, CT_MESSAGE_WORLD, &round->world); break;
    case ROUND_SEND_GROW: send_action(action, CT_MESSAGE_GROW, &round->grow); break;
    case ROUND_SEND_PEER: pause_send_peer(action->peer); break;
    case ROUND_DROP:
        conn_close(((struct peer *)action->peer)->conn,
                   action->why ? action->why : "it is silent");
        part(action->peer);
        break;
    case ROUND_CHANGED:
        run->all->counters.rounds_started += action->to == ROUND_RUNNING;
        if (action->to == ROUND_RUNNING && run->all->on_start)
            run->all->on_start(run->all->context);
        report_change(run, action);
        break;
    case ROUND_SEND_RESUMED:
        send_action(action, CT_MESSAGE_RESUMED, &round->resumed);
        break;
    case ROUND_REMOVED: break;
    case ROUND_FORGET: run_forget(run); break;
    }
}

/* After this process was stopped (SIGSTOP, a suspended machine) all leases seem to be over, but
 * heartbeats wait to be read, or are on their way: the loop reads them before it calls the timer
 * again. */
static bool look_again(struct run *run, uint64_t lag_ms)
{
    if (run->has_looked_again || lag_ms < run->heartbeat_ms / 2)
        return false;
    run->has_looked_again = true;
    return true;
}

static void on_timer(uv_timer_t *timer);

/* libuv's clock does not count the time in which the machine was suspended: the timer looks at ours
 * now and then, because messages, which do so too, may all stay away. */
static void start_timer(struct run *run)
{
    const uint64_t left_ms = (uint64_t)ct_left_ms(run->timer_ms);

    (void)uv_timer_start(&run->timer, on_timer,
                         left_ms < RUN_LOOK_MS ? left_ms : RUN_LOOK_MS, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const uint64_t now_ms = ct_now_ms();
    const uint64_t lag_ms = now_ms > run->timer_ms ? now_ms - run->timer_ms : 0;

    if (now_ms < run->timer_ms) {
        start_timer(run);
        return;
    }
    if (!run->has_looked_again) /* else it has our own wait in it */
        run->all->counters.lag_ms = lag_ms;
    if (run->all->counters.lag_ms > run->all->counters.lag_max_ms)
        run->all->counters.lag_max_ms = run->all->counters.lag_ms;
    if (look_again(run, lag_ms)) {
        (void)uv_timer_start(&run->timer, on_timer, RUN_LOOK_AGAIN_MS, 0);
        return;
    }
    run->has_looked_again = false;
    run->timer_ms = UINT64_MAX;
    run_step(run, &(struct round_command){.kind = ROUND_TICK});
}

/* Deadlines mostly move later: the timer is changed only if it would fire too late. That is also so
 * when its time is past. */
void run_arm_timer(struct run *run)
{
    const uint64_t now_ms = ct_now_ms(), look_ms = now_ms + RUN_HA_LOOK_MS;
    uint64_t next_ms = round_next_ms(run->round);

    if (run->listens_for_ms > 0 && next_ms > look_ms)
        next_ms = look_ms;
    if (run->has_looked_again || (next_ms >= run->timer_ms && run->timer_ms > now_ms))
        return;
    if (next_ms < run->timer_ms)
        run->timer_ms = next_ms; /* else on_timer() still finds how late it is */
    start_timer(run);
}

/* Before the first world the server waits for reports that the run is served elsewhere, even if
 * enough nodes have joined: that other world does not end by itself. Time in which this process was
 * stopped does not count. */
static void listen_first(struct run *run)
{
    const uint64_t now_ms = ct_now_ms(), passed_ms = now_ms - run->looked_ms;

    if (run->listens_for_ms == 0)
        return;
    run->looked_ms = now_ms;
    if (passed_ms < 2 * RUN_HA_LOOK_MS)
        run->listens_for_ms -= passed_ms < run->listens_for_ms ? passed_ms
                                                               : run->listens_for_ms;
    round_wait(run->round, now_ms + run->listens_for_ms);
}

int run_try(struct run *run, const struct round_command *command)
{
    struct round *round = run->round;
    struct counters *counters = &run->all->counters;
    const uint32_t restarts = round->restart_count;
    const uint64_t lost = round->lost_count;
    int rc;

    listen_first(run);
    rc = round_step(round, command, ct_now_ms());

    counters->restarts += round->restart_count - restarts;
    counters->failures[CT_CAUSE_NODE_LOST] += round->lost_count - lost;
    return rc;
}

static int store(const struct run *run, unsigned flags, const struct ct_buf *batch)
{
    const struct journal_sink *sink = run->all->journal;

    return sink->store(sink->context, run->id, flags, ct_buf_data(batch),
                       ct_buf_length(batch));
}

/* Journals the last step before its messages are sent. < 0: the journal failed, and no message of
 * this step may be sent. */
static int keep(struct run *run)
{
    const struct journal_run source = {
        .id = run->id, .heartbeat_ms = run->heartbeat_ms, .round = run->round};
    struct ct_buf batch;
    unsigned flags;
    int noted, rc;

    if (!run->all->journal)
        return 0;
    ct_buf_init(&batch, JOURNAL_BATCH_MAX_BYTES);
    noted = journal_note(&run->mark, &source, &batch, &flags);
    rc = noted > 0 ? store(run, flags, &batch) : 0;
    if (rc == -ENOBUFS && !(flags & JOURNAL_WHOLE)) {
        ct_buf_consume(&batch, ct_buf_length(&batch));
        noted = journal_note_whole(&run->mark, &source, &batch);
        rc = noted == 0 ? store(run, JOURNAL_WHOLE, &batch) : 0;
    }
    if (noted < 0) /* a gap, which a restarted server can live with */
        ct_err("journal: a record is missing run=%s: %s", run->id, strerror(-noted));
    ct_buf_deinit(&batch);
    return rc;
}

static void cut(struct peer *peer)
{
    if (!peer)
        return; /* away */
    peer->run = NULL;
    conn_close(peer->conn, "the journal of the run cannot be written");
}

/* Gives the run up because its journal failed: no message may be sent, so the connections are
 * closed of its members and of those that this step has removed. */
static void abandon(struct run *run)
{
    ct_err("run given up: its journal cannot be written run=%s", run->id);
    for (size_t i = 0; i < run->round->action_count; i++)
        cut(run->round->actions[i].peer);
    member_for_each(member, &run->round->members)
        cut(member->link.peer);
    run_forget(run);
}

/* False: the run was forgotten. */
static bool execute_all(struct run *run)
{
    const struct round *round = run->round;
    const size_t count = round->action_count;

    if (keep(run) < 0) {
        abandon(run);
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
        const bool is_paused = pause_is_acknowledged(unsure);

        if (is_paused && !unsure->is_paused)
            report_paused(run, unsure);
        (void)run_try(run, &(struct round_command){.kind = is_paused ? ROUND_PAUSED
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
