/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

/* One agent's connection. */
struct peer {
    struct dispatch *dispatch;
    struct conn *conn; /* NULL: it is closing */
    struct run *run;   /* NULL: before HELLO, or refused, or not a member any more */
    uint64_t id;
    bool is_probe; /* version 0: a launcher that asks whether ctrun holds this port */
    struct ct_buf in;
    struct admission *admission; /* between HELLO and PROOF; else NULL */
    char host[CT_HOST_MAX];
};

static void step(struct run *run, const struct round_command *command);

void dispatch_init(struct dispatch *dispatch)
{
    ct_list_init(&dispatch->runs);
}

/* ---- Sending ----------------------------------------------------------------------------- */

static void send_message(struct peer *peer, const struct ct_message *message)
{
    struct conn *conn = peer->conn;

    if (conn->state != CONN_OPEN)
        return;
    if (ct_message_encode(conn->out, message) < 0)
        conn_close(conn, "it does not read what we send");
    else
        conn_flush(conn);
}

static void refuse(struct peer *peer, int code, const char *text)
{
    struct ct_message *out = &peer->dispatch->out;

    ct_log(peer->is_probe ? CTRUN_LOG_DEBUG : CTRUN_LOG_INFO,
           "agent refused host=%s error=%s: %s", peer->host, ct_error_name(code), text);
    out->kind = CT_MESSAGE_REFUSE;
    out->refuse = (struct ct_refuse){.code = code, .version = CT_FRAME_VERSION};
    (void)ct_copy(out->refuse.text, sizeof out->refuse.text, text); /* our own words */
    send_message(peer, out);
    conn_finish(peer->conn);
}

/* ---- Runs -------------------------------------------------------------------------------- */

static struct run *find_run(const struct dispatch *dispatch, const char *id)
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

static void forget_run(struct run *run)
{
    struct dispatch *dispatch = run->dispatch;

    ct_info("run forgotten run=%s", run->id);
    ct_list_remove(&run->node);
    dispatch->run_count--;
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
        .endpoint_port = dispatch->endpoint_port,
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

/* All nodes of the run that had this id are gone without a word: it is over, but for the
 * workers that may live until their leases end. 0 or what is wrong with this HELLO. */
static int renew_run(struct run *run, const struct ct_hello *hello)
{
    struct round *round;
    int rc = create_round(&round, run->dispatch, hello);

    if (rc < 0)
        return rc;
    round_succeed(round, run->round);
    round_destroy(run->round);
    run->round = round;
    run->born_ms = ct_now_ms();
    set_heartbeat(run, hello);
    tell_created(run);
    return 0;
}

static struct run *create_run(struct dispatch *dispatch, const struct ct_hello *hello,
                              int *rc)
{
    struct run *run = ct_zalloc(sizeof *run);

    *rc = run ? create_round(&run->round, dispatch, hello) : -ENOMEM;
    if (*rc < 0) {
        free(run);
        return NULL;
    }
    set_heartbeat(run, hello);
    (void)ct_copy(run->id, sizeof run->id, hello->run_id); /* same size */
    run->dispatch = dispatch;
    run->born_ms = ct_now_ms();
    run->timer_ms = UINT64_MAX;
    run->timer.data = run;
    (void)uv_timer_init(dispatch->pool->loop, &run->timer); /* never fails */
    uv_unref((uv_handle_t *)&run
                 ->timer); /* the loop lives for connections, not for leases */
    ct_list_add(&dispatch->runs, &run->node);
    dispatch->run_count++;
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
    send_message(action->peer, out);
}

/* The member left the round; its connection is still there to be closed. */
static void part(struct peer *peer)
{
    peer->run = NULL;
}

static void execute(struct run *run, const struct round_action *action)
{
    const struct round *round = run->round;
    const struct member *member;

    switch (action->kind) {
    case ROUND_SEND_START:
        if ((member = member_find(&round->members, action->id)))
            send_action(run, action, CT_MESSAGE_START, &member->start,
                        sizeof member->start);
        break;
    case ROUND_SEND_WAITING:
        send_action(run, action, CT_MESSAGE_WAITING, &round->waiting,
                    sizeof round->waiting);
        break;
    case ROUND_SEND_STOP:
        send_action(run, action, CT_MESSAGE_STOP, &round->stop, sizeof round->stop);
        break;
    case ROUND_SEND_VERDICT:
        send_action(run, action, CT_MESSAGE_VERDICT, &round->verdict,
                    sizeof round->verdict);
        break;
    case ROUND_SEND_REFUSE:
        part(action->peer);
        refuse(action->peer, round->refuse.code, round->refuse.text);
        break;
    case ROUND_DROP:
        conn_close(((struct peer *)action->peer)->conn, "it is silent");
        part(action->peer);
        break;
    case ROUND_CHANGED:
        run->dispatch->metrics.rounds_started += action->to == ROUND_RUNNING;
        if (action->to == ROUND_RUNNING && run->dispatch->on_start)
            run->dispatch->on_start(run->dispatch->context);
        tell_change(run, action);
        break;
    case ROUND_FORGET: forget_run(run); break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const uint64_t now_ms = ct_now_ms();

    metrics_set_lag(&run->dispatch->metrics,
                    now_ms > run->timer_ms ? now_ms - run->timer_ms : 0);
    run->timer_ms = UINT64_MAX;
    step(run, &(struct round_command){.kind = ROUND_TICK});
}

/* Deadlines mostly move away: the timer is only touched when it would come too late. */
static void arm_timer(struct run *run)
{
    uint64_t next_ms = round_next_ms(run->round);

    if (next_ms >= run->timer_ms)
        return;
    run->timer_ms = next_ms;
    (void)uv_timer_start(&run->timer, on_timer, (uint64_t)ct_left_ms(next_ms), 0);
}

/* The run may be gone afterwards. */
static void step(struct run *run, const struct round_command *command)
{
    struct round *round = run->round;
    struct metrics *metrics = &run->dispatch->metrics;
    const uint32_t restarts = round->restart_count;
    const uint64_t lost = round->lost_count;
    size_t count;

    (void)round_step(round, command, ct_now_ms()); /* only ROUND_ADD can fail */
    metrics->restarts += round->restart_count - restarts;
    metrics->failures[CT_CAUSE_NODE_LOST] += round->lost_count - lost;
    count = round->action_count;
    for (size_t i = 0; i < count; i++) {
        bool is_last = round->actions[i].kind == ROUND_FORGET;

        execute(run, &round->actions[i]);
        if (is_last)
            return;
    }
    arm_timer(run);
}

/* ---- Messages of an agent ---------------------------------------------------------------- */

static void welcome(struct peer *peer, const struct member_link *link)
{
    struct ct_message *out = &peer->dispatch->out;

    out->kind = CT_MESSAGE_WELCOME;
    out->welcome = (struct ct_welcome){
        .heartbeat_ms = peer->run->heartbeat_ms,
        .lost_after_ms = peer->run->round->settings.lost_after_ms,
    };
    (void)ct_copy(out->welcome.seen_as, sizeof out->welcome.seen_as, link->seen_as);
    send_message(peer, out);
}

static void add_member(struct peer *peer, struct run *run)
{
    struct member_link link = {.id = peer->id, .peer = peer};
    struct round_command command = {.kind = ROUND_ADD, .id = peer->id, .link = &link};

    (void)ct_copy(link.host, sizeof link.host, peer->host); /* same size */
    ct_addr_format_host(link.seen_as, &peer->conn->remote);
    ct_addr_format_host(link.reached_at, &peer->conn->local);
    if (round_step(run->round, &command, ct_now_ms()) < 0) {
        if (run->round->members.count == 0)
            forget_run(run);
        refuse(peer, -ENOMEM, "the rendezvous server is out of memory");
        return;
    }
    peer->run = run;
    conn_clear_deadline(peer->conn);
    arm_timer(run);
    ct_info("agent connected run=%s host=%s address=%s", run->id, peer->host,
            link.seen_as);
    welcome(peer, &link);
}

/* "5 s", "12 min", "3 h" */
static void format_age(char *dst, size_t size, uint64_t age_ms)
{
    const unsigned long long seconds = age_ms / 1000;

    if (seconds < 120)
        (void)ct_format(dst, size, "%llu s", seconds);
    else if (seconds < 7200)
        (void)ct_format(dst, size, "%llu min", seconds / 60);
    else
        (void)ct_format(dst, size, "%llu h", seconds / 3600);
}

/* Whose run this server carries: the server of one run is a part of its launcher. The name of
 * the user data base would be better, but asking for it may block. */
static void format_owner(char *dst, size_t size)
{
    const char *name = getenv("USER");

    if (name && *name)
        (void)ct_format(dst, size, " of user %s", name); /* cut is fine */
    else
        (void)ct_format(dst, size, " of uid %u", (unsigned)getuid());
}

static void format_occupant(const struct dispatch *dispatch, char *dst, size_t size)
{
    const struct run *run = find_run(dispatch, dispatch->only_run_id);
    const struct round *round = run ? run->round : NULL;
    uint32_t joined = 0;
    char age[32];

    dst[0] = '\0';
    if (!run)
        return; /* none of its nodes has come yet */
    for (size_t i = 0; i < round->members.count; i++)
        joined += member_is_in_world(round->members.list[i]) ||
                  round->members.list[i]->state == MEMBER_READY;
    format_age(age, sizeof age, ct_now_ms() - run->born_ms);
    (void)ct_format(dst, size, " (%u/%u nodes, up %s)", joined,
                    round->settings.max_nodes, age);
}

/* True when the run id of this HELLO cannot be served here; then it was refused. */
static bool refuse_foreign(struct peer *peer, const struct ct_hello *hello)
{
    const char *ours = peer->dispatch->only_run_id;
    char text[CT_REASON_MAX], owner[128], occupant[128];

    if (!ours || strcmp(ours, hello->run_id) == 0)
        return false;
    format_owner(owner, sizeof owner);
    format_occupant(peer->dispatch, occupant, sizeof occupant);
    (void)ct_format(
        text, sizeof text,
        "this endpoint belongs to run '%s'%s%s, you are run '%s': use another "
        "port, or give all nodes of one job the same run id",
        ours, owner, occupant, hello->run_id);
    refuse(peer, CTRUN_E_WRONG_RUN, text);
    return true;
}

/* This agent may take part in its run. */
static void admit(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct run *run;
    int rc = 0;

    run = find_run(dispatch, hello->run_id);
    if (run && run->round->state == ROUND_CLOSED) {
        refuse(peer, CTRUN_E_CLOSED,
               "the run is over: its last nodes are just leaving");
        return;
    }
    if (!run && dispatch->run_count >= RUNS_MAX) {
        refuse(peer, -ENOBUFS, "this rendezvous server has no room for another run");
        return;
    }
    if (run && round_is_deserted(run->round))
        rc = renew_run(run, hello);
    else if (!run)
        run = create_run(dispatch, hello, &rc);
    if (rc < 0) {
        refuse(peer, rc == -EINVAL ? CTRUN_E_USAGE : rc,
               rc == -EINVAL
                   ? "HELLO with impossible limits: 1 <= min nodes <= max nodes "
                     "<= 65535 and a lease above 0 are needed"
                   : "the rendezvous server is out of memory");
        return;
    }
    add_member(peer, run);
}

static void on_hello(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    const char *why = admission_check(dispatch->token, hello);
    int rc;

    peer->id = ++dispatch->last_id;
    (void)ct_copy(peer->host, sizeof peer->host, hello->host); /* same size */
    if (refuse_foreign(peer, hello))
        return;
    if (why) {
        refuse(peer, CTRUN_E_AUTH, why);
        return;
    }
    if (!dispatch->token) {
        admit(peer, hello);
        return;
    }
    rc = admission_create(&peer->admission, dispatch->token, hello, &dispatch->out);
    if (rc < 0)
        refuse(peer, rc, "the rendezvous server is out of memory");
    else
        send_message(peer, &dispatch->out);
}

static void on_proof(struct peer *peer, const struct ct_proof *proof)
{
    struct admission *admission = peer->admission;

    peer->admission = NULL;
    if (admission_prove(admission, proof, &peer->dispatch->out)) {
        send_message(peer, &peer->dispatch->out);
        admit(peer, admission_hello(admission));
    } else {
        refuse(peer, CTRUN_E_AUTH,
               "your token is not the one of this rendezvous: give the same "
               "--rdzv-token-file or CTRUN_TOKEN on every node");
    }
    admission_destroy(admission);
}

static void acknowledge(struct peer *peer, const struct ct_heartbeat *heartbeat)
{
    struct ct_message *out = &peer->dispatch->out;

    out->kind = CT_MESSAGE_HEARTBEAT_ACK;
    out->heartbeat = *heartbeat;
    send_message(peer, out);
}

static void on_message(struct peer *peer, const struct ct_message *message)
{
    struct round_command command = {
        .kind = ROUND_MESSAGE, .id = peer->id, .message = message};

    if (!peer->run && message->kind == CT_MESSAGE_HELLO && peer->id == 0) {
        on_hello(peer, &message->hello);
        return;
    }
    if (peer->admission && message->kind == CT_MESSAGE_PROOF) {
        on_proof(peer, &message->proof);
        return;
    }
    if (!peer->run || message->kind == CT_MESSAGE_HELLO) {
        refuse(peer, CTRUN_E_PROTOCOL, "HELLO must come first, and once");
        return;
    }
    if (message->kind == CT_MESSAGE_HEARTBEAT)
        acknowledge(peer, &message->heartbeat);
    if (message->kind == CT_MESSAGE_FAILURE)
        metrics_add_failure(&peer->dispatch->metrics, message->failure.cause);
    if (message->kind == CT_MESSAGE_LEAVE)
        ct_info("agent leaves run=%s host=%s: %s", peer->run->id, peer->host,
                message->leave.reason);
    step(peer->run, &command);
}

static void on_frame(struct peer *peer, const struct ct_frame *frame)
{
    struct ct_message *in = &peer->dispatch->in;
    char text[CT_REASON_MAX];
    int rc;

    if (frame->version == 0)
        ct_debug(
            "somebody asks who is here"); /* a launcher that finds its port taken */
    if (frame->version != CT_FRAME_VERSION) {
        (void)ct_format(text, sizeof text,
                        "this server speaks protocol version %d, you speak version %d: "
                        "install the same ctrun on all nodes",
                        CT_FRAME_VERSION, frame->version);
        refuse(peer, CTRUN_E_VERSION, text);
        return;
    }
    rc = ct_message_decode(frame, in);
    if (rc == -ENOSYS)
        ct_debug("message skipped kind=%d host=%s", frame->kind, peer->host);
    else if (rc < 0)
        refuse(peer, CTRUN_E_PROTOCOL, "a message that cannot be read");
    else
        on_message(peer, in);
}

/* ---- Connection -------------------------------------------------------------------------- */

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct peer *peer = conn->context;
    struct ct_frame frame;
    int taken = 0;

    if (ct_buf_append(&peer->in, data, length) < 0) {
        conn_close(conn, "out of memory"); /* a frame and one read always fit */
        return;
    }
    while (conn->state == CONN_OPEN &&
           (taken = ct_frame_decode(ct_buf_data(&peer->in), ct_buf_length(&peer->in),
                                    &frame)) > 0) {
        on_frame(peer, &frame);
        ct_buf_consume(&peer->in, (size_t)taken);
    }
    if (conn->state == CONN_OPEN && taken < 0)
        refuse(peer, CTRUN_E_PROTOCOL, "bytes that are no ctrun message");
    else if (ct_buf_length(conn->out) > CONN_WRITE_MARK_BYTES)
        conn_pause(conn); /* it reads too slowly: no new questions until then */
}

static void on_sent(struct conn *conn)
{
    if (ct_buf_length(conn->out) <= CONN_WRITE_MARK_BYTES / 2)
        conn_resume(conn);
}

static void on_close(struct conn *conn, const char *reason)
{
    struct peer *peer = conn->context;
    char text[CT_REASON_MAX];

    if (peer->run) {
        (void)ct_format(text, sizeof text,
                        "connection to the node broke without a goodbye: %s", reason);
        ct_info("agent gone run=%s host=%s: %s", peer->run->id, peer->host, reason);
        step(peer->run, &(struct round_command){
                            .kind = ROUND_GONE, .id = peer->id, .reason = text});
    }
    admission_destroy(peer->admission);
    ct_buf_deinit(&peer->in);
    free(peer);
}

void dispatch_take(struct dispatch *dispatch, struct conn *conn, const uint8_t *data,
                   size_t length)
{
    static const struct conn_user agent_conn = {
        .kind = "agent",
        .on_bytes = on_bytes,
        .on_sent = on_sent,
        .on_close = on_close,
    };
    struct peer *peer = ct_zalloc(sizeof *peer);

    if (!peer) {
        conn_close(conn, "out of memory");
        return;
    }
    peer->dispatch = dispatch;
    peer->conn = conn;
    ct_buf_init(&peer->in, CONN_IN_MAX_BYTES);
    conn->user = &agent_conn;
    conn->context = peer;
    conn_set_deadline(conn);
    on_bytes(conn, data, length);
}

/* ---- The end ----------------------------------------------------------------------------- */

bool dispatch_has_verdicts_to_deliver(const struct dispatch *dispatch)
{
    struct ct_list *it;

    ct_list_for_each(it, &dispatch->runs) {
        if (ct_list_entry(it, struct run, node)->round->state == ROUND_CLOSED)
            return true;
    }
    return false;
}

void dispatch_close(struct dispatch *dispatch)
{
    struct ct_list *it, *keep;

    ct_list_for_each_safe(it, keep, &dispatch->runs)
        forget_run(ct_list_entry(it, struct run, node));
}
