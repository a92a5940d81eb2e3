/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/dispatch.h"

#include <errno.h>
#include <unistd.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/session/output_commit.h"
#include "rendezvous/session/ha_relay.h"
#include "rendezvous/session/entrance.h"
#include "rendezvous/session/pause.h"
#include "rendezvous/session/relay.h"
#include "rendezvous/session/run.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/tcp.h"

void dispatch_init(struct dispatch *dispatch)
{
    runs_init(&dispatch->runs);
}

/* ---- Messages of a member ---------------------------------------------------------------- */

/* The agent reports the port of its end of the connection. If the ports differ, there is a proxy:
 * what the proxy's kernel acknowledges proves nothing about the agent's host. */
static void on_peer(struct peer *peer, const struct ct_message *message)
{
    const struct round_command command = {.kind = ROUND_DIRECT, .id = peer->id};
    const int port = ct_addr_port(&peer->conn->remote);

    if (port <= 0 || message->peer->port != port) {
        ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                     "agent behind a proxy or a router host=%s its_port=%d seen=%d: if "
                     "it pauses, it counts as lost",
                     peer->host, message->peer->port, port);
        return;
    }
    pause_send_peer(peer);
    run_step(peer->run, &command);
}

/* For messages that report a time: adds how long the message was on its way. */
static void add_transit(struct round_command *command, const struct peer *peer)
{
    struct ct_tcp_view view;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&peer->conn->tcp, &fd) < 0 ||
        ct_tcp_look(fd, &view) < 0)
        return;
    command->waited_ms = view.quiet_ms;
    command->rtt_ms = view.rtt_ms;
}

/* ---- Which message is valid when --------------------------------------------------------- */

static void on_offer(struct peer *peer, const struct ct_message *message)
{
    memcpy(peer->offer.key, message->offer->key, sizeof peer->offer.key);
    peer->offer.has_munge = message->offer->has_munge;
}

static void on_resume(struct peer *peer, const struct ct_message *message)
{
    peer->resume = *message->resume; /* HELLO and PROOF identify the agent */
}

static void on_untimely(struct peer *peer, const struct ct_message *message)
{
    (void)message;
    peer_refuse(peer, CTRUN_E_PROTOCOL, "HELLO must come first, and once");
}

/* All messages that only the round handles. */
static void on_round(struct peer *peer, const struct ct_message *message)
{
    run_step(peer->run, &(struct round_command){
                            .kind = ROUND_MESSAGE, .id = peer->id, .message = message});
}

static void on_clock(struct peer *peer, const struct ct_message *message)
{
    const struct ct_clock clock = {.agent_ns = message->clock->agent_ns,
                                   .server_ns = ct_now_ns()};

    peer_send(peer, &(struct ct_message){CT_MESSAGE_CLOCK, .clock = &clock});
}

static void on_ha_report(struct peer *peer, const struct ct_message *message)
{
    ha_relay_on_report(&peer->dispatch->ha, peer, message->ha_report);
}

/* Accepted for the current world only, and for the sender's own ranks; from group rank 0 also
 * metrics of nodes. */
static void on_metrics(struct peer *peer, const struct ct_message *message)
{
    struct run *run = peer->run;
    const struct member *member = member_find(&run->round->members, peer->id);
    const struct ct_metrics *metrics = message->metrics;
    size_t left_out;

    if (!member || metrics->generation != run->round->generation ||
        member->start.generation != run->round->generation)
        return;
    if (!rank_metrics_are_of_nodes(metrics))
        left_out = rank_metrics_on_metrics(
            &run->metrics, metrics, member->start.rank_base, member->join.slots, false);
    else if (member->start.group_rank == 0)
        left_out = rank_metrics_on_metrics(&run->node_metrics, metrics, 0,
                                           member->start.group_world_size, true);
    else
        left_out = metrics->count;
    run->all->counters.metrics_refused += left_out;
}

static void on_heartbeat(struct peer *peer, const struct ct_message *message)
{
    output_commit_acknowledge(peer->commit, &peer->outbox, message->heartbeat);
    on_round(peer, message);
}

static void on_stopped(struct peer *peer, const struct ct_message *message)
{
    struct round_command command = {
        .kind = ROUND_MESSAGE, .id = peer->id, .message = message};

    add_transit(&command, peer);
    run_step(peer->run, &command);
}

static void on_failure(struct peer *peer, const struct ct_message *message)
{
    const uint8_t cause = message->failure->cause;

    if (cause <= CT_CAUSE_LAST) /* -ENOSYS: a kind of a newer agent */
        peer->dispatch->runs.counters.failures[cause]++;
    on_stopped(peer, message);
}

static void on_leave(struct peer *peer, const struct ct_message *message)
{
    ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                 "agent leaves run=%s host=%s: %s", peer->run->id, peer->host,
                 message->leave->reason);
    on_round(peer, message);
}

enum stage {
    STAGE_NEW,     /* HELLO has not come */
    STAGE_PROVING, /* between HELLO and PROOF */
    STAGE_MESSENGER,
    STAGE_MEMBER,
    STAGE_PARTED, /* refused, or not a member any more */
};

static enum stage stage_of(const struct peer *peer)
{
    return peer->id == 0        ? STAGE_NEW
           : peer->admission    ? STAGE_PROVING
           : peer->is_messenger ? STAGE_MESSENGER
           : peer->run          ? STAGE_MEMBER
                                : STAGE_PARTED;
}

/* A kind that is not here goes to the round if a member sends it, else it is an error. */
static const struct {
    enum stage stage;
    enum ct_message_kind kind;
    void (*handle)(struct peer *peer, const struct ct_message *message);
} handlers[] = {
    {STAGE_NEW, CT_MESSAGE_OFFER, on_offer},
    {STAGE_NEW, CT_MESSAGE_RESUME, on_resume},
    {STAGE_NEW, CT_MESSAGE_HELLO, entrance_on_hello},
    {STAGE_PROVING, CT_MESSAGE_PROOF, entrance_on_proof},
    {STAGE_MESSENGER, CT_MESSAGE_HA_PLAN, entrance_on_plan},
    {STAGE_MEMBER, CT_MESSAGE_OFFER, on_untimely},
    {STAGE_MEMBER, CT_MESSAGE_HELLO, on_untimely},
    {STAGE_MEMBER, CT_MESSAGE_HEARTBEAT, on_heartbeat},
    {STAGE_MEMBER, CT_MESSAGE_METRICS, on_metrics},
    {STAGE_MEMBER, CT_MESSAGE_PEER, on_peer},
    {STAGE_MEMBER, CT_MESSAGE_SIGNAL, relay_signal},
    {STAGE_MEMBER, CT_MESSAGE_STACKS, relay_stacks},
    {STAGE_MEMBER, CT_MESSAGE_CHAOS, relay_chaos},
    {STAGE_MEMBER, CT_MESSAGE_CLOCK, on_clock},
    {STAGE_MEMBER, CT_MESSAGE_CALLS, relay_calls},
    {STAGE_MEMBER, CT_MESSAGE_ABSENT, relay_absent},
    {STAGE_MEMBER, CT_MESSAGE_FAILURE, on_failure},
    {STAGE_MEMBER, CT_MESSAGE_STOPPED, on_stopped},
    {STAGE_MEMBER, CT_MESSAGE_LEAVE, on_leave},
    {STAGE_MEMBER, CT_MESSAGE_HA_REPORT, on_ha_report},
};

static void on_message(struct peer *peer, const struct ct_message *message)
{
    const enum stage stage = stage_of(peer);

    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        if (handlers[i].stage == stage && handlers[i].kind == message->kind) {
            handlers[i].handle(peer, message);
            return;
        }
    if (stage == STAGE_MEMBER)
        on_round(peer, message);
    else
        on_untimely(peer, message);
}

static void on_frame(struct peer *peer, const struct ct_frame *frame)
{
    struct dispatch *dispatch = peer->dispatch;
    struct ct_message message;
    struct ct_frame inner;
    char text[CT_REASON_MAX];
    int rc;

    peer->is_probe = frame->version == 0;
    if (frame->version != CT_FRAME_VERSION) {
        (void)ct_format(text, sizeof text,
                        "this server has protocol version %d, this node version %d: "
                        "install the same ctrun on all nodes",
                        CT_FRAME_VERSION, frame->version);
        entrance_turn_away(peer, CTRUN_E_VERSION, text);
        return;
    }
    if ((rc = ct_seal_decode(&peer->outbox.seal, frame, dispatch->plain, &inner)) == 0)
        rc = ct_message_decode(&inner, &message, &dispatch->room,
                               sizeof dispatch->room);
    if (rc == -ENOSYS)
        ct_debug("message skipped kind=%d host=%s", inner.kind, peer->host);
    else if (rc < 0)
        peer_refuse(peer, CTRUN_E_PROTOCOL, "a message that cannot be read");
    else
        on_message(peer, &message);
}

/* ---- Connection -------------------------------------------------------------------------- */

/* An agent that is not admitted yet gets only as much memory as its longest message needs. */
static size_t count_room(const struct peer *peer)
{
    const size_t most = CT_FRAME_HEADER_BYTES + CONN_UNPROVEN_FRAME_MAX_BYTES;

    return peer->run ? SIZE_MAX : most - ct_buf_length(&peer->in);
}

/* Handles the first `length` bytes of `data`. False: no more bytes are accepted. */
static bool handle_bytes(struct peer *peer, const uint8_t *data, size_t length)
{
    struct conn *conn = peer->conn;
    struct ct_frame frame;
    int taken = 0;

    if (ct_buf_append(&peer->in, data, length) < 0) {
        conn_close(conn, "out of memory"); /* a frame and one read always fit */
        return false;
    }
    while (conn->state == CONN_OPEN &&
           (taken = ct_frame_decode(ct_buf_data(&peer->in), ct_buf_length(&peer->in),
                                    &frame)) > 0) {
        on_frame(peer, &frame);
        ct_buf_consume(&peer->in, (size_t)taken);
    }
    if (conn->state != CONN_OPEN)
        return false;
    if (taken == 0 && count_room(peer) > 0)
        return true;
    conn_note(conn, REJECT_MALFORMED);
    peer_refuse(peer, CTRUN_E_PROTOCOL,
                taken < 0 ? "bytes that are not a ctrun message"
                          : "a message too long for a node that is not admitted yet");
    return false;
}

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct peer *peer = conn->context;

    while (length > 0) {
        const size_t room = count_room(peer), part = length < room ? length : room;

        if (!handle_bytes(peer, data, part))
            return;
        data += part;
        length -= part;
    }
    if (ct_buf_length(conn->out) > CONN_WRITE_MARK_BYTES)
        conn_pause(conn); /* it reads too slowly: read nothing until output is sent */
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
        (void)ct_format(text, sizeof text, "the connection to it broke (%s)", reason);
        ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                     "agent gone run=%s host=%s: %s", peer->run->id, peer->host,
                     reason);
        run_step(peer->run, &(struct round_command){
                                .kind = ROUND_GONE,
                                .id = peer->id,
                                .reason = text,
                                .is_owed = ct_buf_length(&peer->outbox.held) > 0 ||
                                           ct_buf_length(conn->out) > 0});
    }
    ha_relay_drop(&peer->dispatch->ha, peer);
    admission_destroy(peer->admission);
    outbox_deinit(&peer->outbox);
    ct_buf_deinit(&peer->in);
    free(peer);
}

static const struct conn_user agent_conn = {
    .kind = "agent",
    .on_bytes = on_bytes,
    .on_sent = on_sent,
    .on_close = on_close,
};

void dispatch_on_bytes(struct dispatch *dispatch, struct conn *conn,
                       const uint8_t *data, size_t length)
{
    const bool is_silent = dispatch->is_candidate && dispatch->ha.plan.epoch == 0;
    struct peer *peer = is_silent ? NULL : ct_zalloc(sizeof *peer);

    if (!peer) {
        conn_close(conn, is_silent ? "another node is the rendezvous server"
                                   : "out of memory");
        return;
    }
    peer->dispatch = dispatch;
    peer->commit = dispatch->is_candidate ? NULL : dispatch->commit;
    peer->refused = &dispatch->refused;
    peer->conn = conn;
    ct_buf_init(&peer->in, CONN_IN_MAX_BYTES);
    outbox_init(&peer->outbox, conn);
    conn->user = &agent_conn;
    conn->context = peer;
    conn_set_deadline(conn);
    on_bytes(conn, data, length);
}

/* ---- The end ----------------------------------------------------------------------------- */

bool dispatch_has_verdicts_to_deliver(const struct dispatch *dispatch)
{
    ct_list_for_each(struct run, run, &dispatch->runs.list, node) {
        if (run->round->state == ROUND_CLOSED)
            return true;
    }
    return false;
}

void dispatch_step_down(struct dispatch *dispatch)
{
    dispatch->is_candidate = true;
    dispatch->ha.plan.epoch = 0;
    if (dispatch->commit)
        output_commit_drop(dispatch->commit);
    ct_list_for_each(struct conn, conn, &dispatch->pool->conns, node) {
        if (conn->user != &agent_conn)
            continue;
        ((struct peer *)conn->context)->run = NULL;
        conn_close(conn, "another node is the rendezvous server");
    }
    runs_close(&dispatch->runs); /* another server decides from now on */
}

void dispatch_close(struct dispatch *dispatch)
{
    runs_close(&dispatch->runs);
}
