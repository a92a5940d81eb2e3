/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "rendezvous/gate.h"
#include "rendezvous/limits.h"
#include "rendezvous/occupant.h"
#include "rendezvous/pause.h"
#include "rendezvous/relay.h"
#include "rendezvous/run.h"
#include "rendezvous/standby.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/tcp.h"

void dispatch_init(struct dispatch *dispatch)
{
    ct_list_init(&dispatch->runs);
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
    out->welcome.wall_ns = ct_wall_ns();
    (void)ct_copy(out->welcome.seen_as, sizeof out->welcome.seen_as, link->seen_as);
    peer_send(peer, out);
}

/* With it the agent may come back on another connection. */
static void send_ticket(struct peer *peer, const struct member_link *link)
{
    struct ct_message *out = &peer->dispatch->out;

    out->kind = CT_MESSAGE_TICKET;
    out->ticket = (struct ct_ticket){.id = link->id, .key = link->key};
    peer_send(peer, out);
}

/* 0 when there is no randomness: then a connection that breaks is the end of a membership. */
static uint64_t make_key(void)
{
    uint64_t key = 0;

    return getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key ? key : 0;
}

static struct member_link make_link(struct peer *peer)
{
    struct member_link link = {.id = peer->id, .peer = peer};

    (void)ct_copy(link.host, sizeof link.host, peer->host); /* same size */
    ct_addr_format_host(link.seen_as, &peer->conn->remote);
    ct_addr_format_host(link.reached_at, &peer->conn->local);
    return link;
}

static void add_member(struct peer *peer, struct run *run)
{
    struct round_command command = {.kind = ROUND_ADD};
    struct member_link link;

    /* Anew: members are kept in this order, and with a token who came first may prove last. */
    peer->id = ++peer->dispatch->last_id;
    link = make_link(peer);
    link.key = make_key();
    command.id = link.id;
    command.link = &link;
    if (round_step(run->round, &command, ct_now_ms()) < 0) {
        if (run->round->members.count == 0)
            run_forget(run);
        peer_refuse(peer, -ENOMEM, "the rendezvous server is out of memory");
        return;
    }
    peer->run = run;
    conn_clear_deadline(peer->conn);
    run_arm_timer(run);
    ct_info("agent connected run=%s host=%s address=%s", run->id, peer->host,
            link.seen_as);
    welcome(peer, &link);
    if (link.key != 0)
        send_ticket(peer, &link);
}

/* The agent was a member before its connection broke, or before this server began. */
static void resume_member(struct peer *peer, const char *run_id)
{
    struct run *run = run_find(peer->dispatch, run_id);
    struct ct_message message;
    const struct member_link link = make_link(peer);
    int rc;
    const struct round_command command = {.kind = ROUND_RESUME,
                                          .id = peer->resume.id,
                                          .link = &link,
                                          .message = &message};

    ct_message_init(&message, CT_MESSAGE_RESUME);
    message.resume = peer->resume;
    if (!run) {
        (void)ct_copy(peer->dispatch->unknown_run_id,
                      sizeof peer->dispatch->unknown_run_id, run_id); /* same size */
        peer->dispatch->unknown_ms = ct_now_ms();
        peer_refuse(peer, CTRUN_E_LEADER_LOST,
                    "this rendezvous does not know the run: it was restarted without "
                    "its journal, or the run has ended");
        return;
    }
    if ((rc = run_try(run, &command)) == 0) {
        peer->run = run;
        peer->id = peer->resume.id;
        conn_clear_deadline(peer->conn);
        ct_info("agent resumed run=%s host=%s address=%s", run->id, peer->host,
                link.seen_as);
        welcome(peer, &link);
    } else if (rc == -EAGAIN) {
        conn_close(peer->conn, "others may go on without this server");
    } else {
        peer_refuse(peer, CTRUN_E_LEADER_LOST,
                    "the run has gone on without this node: nothing was heard of it "
                    "for too long");
    }
    run_execute(run);
}

/* True when the run id of this HELLO cannot be served here; then it was refused. */
static bool refuse_foreign(struct peer *peer, const struct ct_hello *hello)
{
    const char *ours = peer->dispatch->only_run_id;
    char text[CT_REASON_MAX], owner[128], occupant[128];

    if (!ours || strcmp(ours, hello->run_id) == 0)
        return false;
    occupant_format_owner(owner, sizeof owner);
    occupant_format(peer->dispatch, occupant, sizeof occupant);
    (void)ct_format(
        text, sizeof text,
        "this endpoint belongs to run '%s'%s%s, you are run '%s': use another "
        "port, or give all nodes of one job the same run id",
        ours, owner, occupant, hello->run_id);
    peer_refuse(peer, CTRUN_E_WRONG_RUN, text);
    return true;
}

/* This agent may take part in its run. */
static void admit(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct run *run;
    int rc = 0;

    if (refuse_foreign(peer, hello))
        return;
    if (peer->resume.key != 0) {
        resume_member(peer, hello->run_id);
        return;
    }
    run = run_find(dispatch, hello->run_id);
    if (run && run->round->state == ROUND_CLOSED) {
        peer_refuse(peer, CTRUN_E_CLOSED,
                    "the run is over: its last nodes are just leaving");
        return;
    }
    if (!run && dispatch->run_count >= RUNS_MAX) {
        peer_refuse(peer, -ENOBUFS,
                    "this rendezvous server has no room for another run");
        return;
    }
    if (run && round_is_deserted(run->round))
        rc = run_renew(run, hello);
    else if (!run)
        run = run_create(dispatch, hello, &rc);
    if (rc < 0) {
        peer_refuse(peer, rc == -EINVAL ? CTRUN_E_USAGE : rc,
                    rc == -EINVAL
                        ? "HELLO with impossible limits: 1 <= min nodes <= max nodes "
                          "<= 65535 and a lease above 0 are needed"
                        : "the rendezvous server is out of memory");
        return;
    }
    add_member(peer, run);
}

static void challenge(struct peer *peer, const struct admission_reply *reply)
{
    struct ct_message *out = &peer->dispatch->out;

    if (reply->has_offer) {
        out->kind = CT_MESSAGE_OFFER;
        out->offer = reply->offer;
        peer_send(peer, out);
    }
    out->kind = CT_MESSAGE_CHALLENGE;
    out->challenge = reply->challenge;
    peer_send(peer, out);
}

static void on_hello(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct admission_reply reply;
    struct ctrun_error err;
    const char *why = admission_check(&dispatch->rules, &peer->offer, hello);
    int rc;

    peer->id = ++dispatch->last_id;
    (void)ct_copy(peer->host, sizeof peer->host, hello->host); /* same size */
    /* Whose run this is, a stranger hears only where nobody has to prove anything. */
    if (!admission_has_secret(&dispatch->rules) && refuse_foreign(peer, hello))
        return;
    if (why) {
        peer_refuse(peer, CTRUN_E_AUTH, why);
        return;
    }
    if (!admission_has_secret(&dispatch->rules)) {
        admit(peer, hello);
        return;
    }
    rc = admission_create(&peer->admission, &dispatch->rules, &peer->offer,
                          &peer->resume, hello, &reply, &err);
    if (rc < 0)
        peer_refuse(peer, rc, err.text);
    else
        challenge(peer, &reply);
}

static void on_proof(struct peer *peer, const struct ct_proof *proof)
{
    struct admission *admission = peer->admission;
    struct ct_message *out = &peer->dispatch->out;
    struct ct_seal seal = {0};

    peer->admission = NULL;
    if (admission_prove(admission, proof, &out->proof, &seal)) {
        out->kind = CT_MESSAGE_SERVER_PROOF;
        peer_send(peer, out);
        peer->seal = seal; /* what follows */
        admit(peer, admission_hello(admission));
    } else {
        peer_refuse(peer, CTRUN_E_AUTH,
                    "your token is not the one of this rendezvous: give the same "
                    "--rdzv-token-file or CTRUN_TOKEN on every node");
    }
    ct_seal_wipe(&seal);
    admission_destroy(admission);
}

/* Of what tells when something happened, how long it was on its way. */
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

static void on_message(struct peer *peer, const struct ct_message *message)
{
    struct round_command command = {
        .kind = ROUND_MESSAGE, .id = peer->id, .message = message};

    if (message->kind == CT_MESSAGE_OFFER && peer->id == 0) {
        peer->offer = message->offer;
        return;
    }
    if (!peer->run && message->kind == CT_MESSAGE_HELLO && peer->id == 0) {
        on_hello(peer, &message->hello);
        return;
    }
    if (peer->id == 0 && message->kind == CT_MESSAGE_RESUME) {
        peer->resume = message->resume; /* who it is, HELLO and PROOF tell */
        return;
    }
    if (peer->admission && message->kind == CT_MESSAGE_PROOF) {
        on_proof(peer, &message->proof);
        return;
    }
    if (!peer->run || message->kind == CT_MESSAGE_HELLO ||
        message->kind == CT_MESSAGE_OFFER) {
        peer_refuse(peer, CTRUN_E_PROTOCOL, "HELLO must come first, and once");
        return;
    }
    if (message->kind == CT_MESSAGE_PEER) {
        pause_take_peer(peer, &message->peer);
        return;
    }
    if (message->kind == CT_MESSAGE_SIGNAL) {
        relay_signal(peer, &message->signal);
        return;
    }
    if (message->kind == CT_MESSAGE_HEARTBEAT)
        standby_acknowledge(peer, &message->heartbeat);
    if (message->kind == CT_MESSAGE_FAILURE)
        metrics_add_failure(&peer->dispatch->metrics, message->failure.cause);
    if (message->kind == CT_MESSAGE_FAILURE || message->kind == CT_MESSAGE_STOPPED)
        add_transit(&command, peer);
    if (message->kind == CT_MESSAGE_LEAVE)
        ct_info("agent leaves run=%s host=%s: %s", peer->run->id, peer->host,
                message->leave.reason);
    if (message->kind == CT_MESSAGE_ECHO) {
        standby_take_echo(peer, &command);
        return;
    }
    run_step(peer->run, &command);
}

static void on_frame(struct peer *peer, const struct ct_frame *frame)
{
    struct ct_message *in = &peer->dispatch->in;
    uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    struct ct_frame inner;
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
        peer_refuse(peer, CTRUN_E_VERSION, text);
        return;
    }
    if ((rc = ct_seal_decode(&peer->seal, frame, plain, &inner)) == 0)
        rc = ct_message_decode(&inner, in);
    if (rc == -ENOSYS)
        ct_debug("message skipped kind=%d host=%s", inner.kind, peer->host);
    else if (rc < 0)
        peer_refuse(peer, CTRUN_E_PROTOCOL, "a message that cannot be read");
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
        conn_note(conn, STRANGER_MALFORMED);
    if (conn->state == CONN_OPEN && taken < 0)
        peer_refuse(peer, CTRUN_E_PROTOCOL, "bytes that are no ctrun message");
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
        run_step(peer->run,
                 &(struct round_command){.kind = ROUND_GONE,
                                         .id = peer->id,
                                         .reason = text,
                                         .is_owed = ct_buf_length(&peer->held) > 0 ||
                                                    ct_buf_length(conn->out) > 0});
    }
    admission_destroy(peer->admission);
    ct_seal_wipe(&peer->seal);
    ct_list_remove(&peer->held_node);
    ct_buf_deinit(&peer->held);
    ct_buf_deinit(&peer->in);
    free(peer);
}

static const struct conn_user agent_conn = {
    .kind = "agent",
    .on_bytes = on_bytes,
    .on_sent = on_sent,
    .on_close = on_close,
};

void dispatch_take(struct dispatch *dispatch, struct conn *conn, const uint8_t *data,
                   size_t length)
{
    struct peer *peer = dispatch->is_standby ? NULL : ct_zalloc(sizeof *peer);

    if (!peer) {
        conn_close(conn,
                   dispatch->is_standby ? "another node is the host" : "out of memory");
        return;
    }
    peer->dispatch = dispatch;
    peer->conn = conn;
    ct_buf_init(&peer->in, CONN_IN_MAX_BYTES);
    ct_buf_init(&peer->held, CONN_OUT_MAX_BYTES);
    ct_list_init(&peer->held_node);
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

void dispatch_yield(struct dispatch *dispatch)
{
    struct ct_list *it, *keep;

    dispatch->is_standby = true;
    if (dispatch->gate)
        gate_drop(dispatch->gate);
    ct_list_for_each(it, &dispatch->pool->conns) {
        struct conn *conn = ct_list_entry(it, struct conn, node);

        if (conn->user != &agent_conn)
            continue;
        ((struct peer *)conn->context)->run = NULL;
        conn_close(conn, "another node is the host");
    }
    ct_list_for_each_safe(it, keep, &dispatch->runs)
        run_forget(ct_list_entry(it, struct run, node));
    allegiance_end(&dispatch->allegiance);
}

void dispatch_close(struct dispatch *dispatch)
{
    struct ct_list *it, *keep;

    ct_list_for_each_safe(it, keep, &dispatch->runs)
        run_forget(ct_list_entry(it, struct run, node));
    allegiance_end(&dispatch->allegiance);
}
