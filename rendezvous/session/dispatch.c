/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/random.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/session/output_commit.h"
#include "rendezvous/session/ha_relay.h"
#include "rendezvous/session/endpoint_owner.h"
#include "rendezvous/session/pause.h"
#include "rendezvous/session/relay.h"
#include "rendezvous/session/run.h"
#include "rendezvous/session/run_room.h"
#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/tcp.h"

void dispatch_init(struct dispatch *dispatch)
{
    runs_init(&dispatch->runs);
}

/* ---- Agents that are refused ------------------------------------------------------------- */

/* Who has proven nothing is called by its address. */
static void format_name(char *dst, size_t size, const struct peer *peer, int code)
{
    char address[CT_ADDR_TEXT_MAX];

    ct_addr_format_host(address, &peer->conn->remote);
    if (peer->host[0] && code != CTRUN_E_AUTH)
        (void)ct_copy(dst, size, peer->host);
    else
        (void)ct_format(dst, size, "%s%s%.64s%s", address,
                        peer->host[0] ? " (calls itself " : "", peer->host,
                        peer->host[0] ? ")" : "");
}

/* Refuses one that wants to be a member: those who wait for it are told. */
static void turn_away(struct peer *peer, int code, const char *text)
{
    const char *run_id = peer->dispatch->only_run_id;
    struct run *run = run_id ? run_find(&peer->dispatch->runs, run_id) : NULL;
    char name[CT_HOST_MAX];

    if (run && !peer->is_probe) {
        format_name(name, sizeof name, peer, code);
        round_note_refused(run->round, name, code, ct_now_ms());
        run_step(run, &(struct round_command){.kind = ROUND_TICK});
    }
    peer_refuse(peer, code, text);
}

/* ---- Messages of an agent ---------------------------------------------------------------- */

static void welcome(struct peer *peer, const struct member_link *link)
{
    struct ct_welcome out = {
        .heartbeat_ms = peer->run->heartbeat_ms,
        .lost_after_ms = peer->run->round->settings.lost_after_ms,
        .wall_ns = ct_wall_ns(),
        .instance = peer->run->round->settings.instance,
        .term = peer->dispatch->term,
    };

    (void)ct_copy(out.seen_as, sizeof out.seen_as, link->seen_as);
    (void)ct_copy(out.host, sizeof out.host, peer->dispatch->host); /* same size */
    peer_send(peer, &(struct ct_message){CT_MESSAGE_WELCOME, .welcome = &out});
}

/* With it the agent may come back on another connection. */
static void send_ticket(struct peer *peer, const struct member_link *link)
{
    const struct ct_ticket ticket = {.id = link->id, .key = link->key};

    peer_send(peer, &(struct ct_message){CT_MESSAGE_TICKET, .ticket = &ticket});
}

/* 0 when there is no randomness: then a connection that breaks is the end of a membership. */
static uint64_t make_key(void)
{
    uint64_t key = 0;

    return getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key ? key : 0;
}

static struct member_link make_link(struct peer *peer)
{
    struct member_link link = {
        .id = peer->id, .peer = peer, .job = peer->job, .serves = peer->serves};

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
    peer->id = ++peer->dispatch->runs.last_id;
    link = make_link(peer);
    link.key = make_key();
    command.id = link.id;
    command.link = &link;
    if (!conn_prove(peer->conn, CONN_MEMBER)) {
        if (run->round->members.count == 0)
            run_forget(run);
        return;
    }
    if (round_step(run->round, &command, ct_now_ms()) < 0) {
        if (run->round->members.count == 0)
            run_forget(run);
        peer_refuse(peer, -ENOMEM, "the rendezvous server is out of memory");
        return;
    }
    peer->run = run;
    conn_clear_deadline(peer->conn);
    run_arm_timer(run);
    ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                 "agent connected run=%s host=%s address=%s", run->id, peer->host,
                 link.seen_as);
    welcome(peer, &link);
    if (link.key != 0)
        send_ticket(peer, &link);
}

static const char new_launcher[] = "this rendezvous does not know the run: the "
                                   "launcher that served it before is gone, "
                                   "and the workers of its node with it";

/* Workers of another founding of the run may live: nobody founds it here for a while. */
static void note_other(struct dispatch *dispatch, const struct ct_hello *hello,
                       struct run *run)
{
    const uint64_t now_ms = ct_now_ms();

    run_memory_note(&dispatch->runs.memory, hello->run_id, hello->generation, now_ms);
    if (run && run->round->generation == 0) {
        round_raise_floor(run->round, hello->generation);
        round_hold(run->round, now_ms);
        run_arm_timer(run); /* it may be told */
    }
}

/* The agent was a member before its connection broke, or before this server began. */
static void resume_member(struct peer *peer, const struct ct_hello *hello)
{
    const char *run_id = hello->run_id;
    struct run *run = run_find(&peer->dispatch->runs, run_id);
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = &peer->resume};
    const struct member_link link = make_link(peer);
    const struct round_command command = {.kind = ROUND_RESUME,
                                          .id = peer->resume.id,
                                          .link = &link,
                                          .message = &message};

    if (!run) {
        run_memory_note(&peer->dispatch->runs.memory, run_id, peer->resume.generation,
                        ct_now_ms());
        peer_refuse(peer, CTRUN_E_LEADER_LOST,
                    peer->dispatch->only_run_id
                        ? new_launcher
                        : "this rendezvous does not know the run: it was restarted "
                          "without its journal, or the run has ended");
        return;
    }
    if (run_try(run, &command) == 0) {
        peer->run = run;
        peer->id = peer->resume.id;
        conn_clear_deadline(peer->conn);
        (void)conn_prove(peer->conn, CONN_MEMBER); /* else on_close() tells the run */
        ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                     "agent resumed run=%s host=%s address=%s", run->id, peer->host,
                     link.seen_as);
        welcome(peer, &link);
    } else {
        if (hello->instance != 0 && hello->instance != run->round->settings.instance)
            note_other(peer->dispatch, hello, run);
        peer_refuse(peer, CTRUN_E_LEADER_LOST,
                    peer->dispatch->only_run_id &&
                            run->round->generation < peer->resume.generation
                        ? new_launcher
                        : "the run has gone on without this node: nothing was received "
                          "from it for too long");
    }
    run_execute(run);
}

/* True when the run id of this HELLO cannot be served here; then it was refused. */
static bool refuse_foreign(struct peer *peer, const struct ct_hello *hello)
{
    const char *ours = peer->dispatch->only_run_id;
    char text[CT_REASON_MAX], owner[128], job[128];

    if (!ours && hello->job_count > 0 && hello->job[0].wants_launcher) {
        turn_away(peer, CTRUN_E_WRONG_RUN,
                  "this is a server of many runs, not a node of the job");
        return true;
    }
    if (!ours || strcmp(ours, hello->run_id) == 0)
        return false;
    endpoint_owner_format(owner, sizeof owner);
    endpoint_owner_format_job(run_find(&peer->dispatch->runs, ours), job, sizeof job);
    (void)ct_format(
        text, sizeof text,
        "this endpoint belongs to run '%s'%s%s, you are run '%s': use another "
        "port, or give all nodes of one job the same run id",
        ours, owner, job, hello->run_id);
    turn_away(peer, CTRUN_E_WRONG_RUN, text);
    return true;
}

/* True when this agent has had workers of another founding of the run: it is not let in, and while
 * there are such agents nobody founds the run here. */
static bool refuse_other_instance(struct peer *peer, const struct ct_hello *hello,
                                  struct run *run)
{
    struct dispatch *dispatch = peer->dispatch;
    const struct run_memory_entry *known = run_memory_find(&dispatch->runs.memory,
                                                           hello->run_id);

    if (hello->instance == 0)
        return false;
    if (run ? run->round->settings.instance == hello->instance
            : known && known->instance == hello->instance) {
        if (run)
            round_raise_floor(run->round, hello->generation);
        return false;
    }
    note_other(dispatch, hello, run);
    peer_refuse(peer, CTRUN_E_LEADER_LOST,
                "this rendezvous does not know the run that this node belongs to: it "
                "was restarted");
    return true;
}

/* A node of a run that lives, and whose endpoint this is: see launcher/ha/ha_messenger.c. Nobody
 * founds that run here; where it is comes next. */
static void on_messenger(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct run *run = run_find(&dispatch->runs, hello->run_id);

    if ((run && run->round->settings.instance == hello->instance) ||
        peer->resume.key == dispatch->ha.plan.epoch) {
        conn_finish(peer->conn); /* the run is here, or another one of the same etcd */
        return;
    }
    note_other(dispatch, hello, run);
    peer->is_messenger = dispatch->ha.hooks != NULL;
    if (!peer->is_messenger)
        peer_refuse(peer, CTRUN_E_USAGE, "this rendezvous was started without --ha");
}

static void on_plan(struct peer *peer, const struct ct_message *message)
{
    const struct ct_ha_plan *plan = message->ha_plan;
    const struct ha_hooks *hooks = peer->dispatch->ha.hooks;

    if (plan->epoch != 0 && plan->phase == CT_HA_ACTIVE)
        hooks->on_found(hooks->context, plan);
    peer_refuse(peer, CTRUN_E_CLOSED, "the plan was received");
}

/* For another run; false: then it was refused. */
static bool has_room(struct peer *peer)
{
    struct dispatch *dispatch = peer->dispatch;

    if (!admission_has_secret(&dispatch->rules) &&
        !run_room_make(&dispatch->runs, &peer->conn->remote)) {
        peer_refuse(peer, -ENOBUFS,
                    "this rendezvous server has too many runs of your address; with a "
                    "token it does not count them");
        return false;
    }
    if (dispatch->runs.count < RUNS_MAX)
        return true;
    peer_refuse(peer, -ENOBUFS, "this rendezvous server has no room for another run");
    return false;
}

/* This agent may take part in its run. */
static void admit(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct run *run;
    int rc = 0;

    if (refuse_foreign(peer, hello))
        return;
    if (dispatch->commit &&
        !peer->commit) { /* it came while another node was elected */
        ha_relay_send_where(&dispatch->ha, peer);
        conn_finish(peer->conn);
        return;
    }
    if (peer->resume.key != 0 && peer->resume.id == 0) {
        on_messenger(peer, hello);
        return;
    }
    if (peer->resume.key != 0) {
        resume_member(peer, hello);
        return;
    }
    run = run_find(&dispatch->runs, hello->run_id);
    if (refuse_other_instance(peer, hello, run))
        return;
    if (run && run->round->state == ROUND_CLOSED) {
        peer_refuse(peer, CTRUN_E_CLOSED,
                    "the run is over: its last nodes are just leaving");
        return;
    }
    if (!run && !has_room(peer))
        return;
    if (run && round_is_deserted(run->round))
        rc = run_renew(run, hello);
    else if (!run && (run = run_create(&dispatch->runs, hello, &rc)))
        run->founder = peer->conn->remote;
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
    if (reply->has_offer)
        peer_send(peer, &(struct ct_message){CT_MESSAGE_OFFER, .offer = &reply->offer});
    peer_send(peer, &(struct ct_message){CT_MESSAGE_CHALLENGE,
                                         .challenge = &reply->challenge});
}

static void on_hello(struct peer *peer, const struct ct_message *message)
{
    const struct ct_hello *hello = message->hello;
    struct dispatch *dispatch = peer->dispatch;
    struct admission_reply reply;
    struct ctrun_error err;
    const char *why = admission_check(&dispatch->rules, &peer->offer, hello);
    int rc;

    peer->id = ++dispatch->runs.last_id;
    (void)ct_copy(peer->host, sizeof peer->host, hello->host); /* same size */
    peer->serves = dispatch->is_in_agent && hello->pid == getpid() &&
                   strcmp(hello->host, dispatch->host) == 0;
    if (hello->job_count > 0 &&
        hello->instance == 0) /* else it was of the run before */
        peer->job = hello->job[0];
    /* Whose run this is, an unproven client hears only where nobody has to prove anything. */
    if (!admission_has_secret(&dispatch->rules) && refuse_foreign(peer, hello))
        return;
    if (why) {
        turn_away(peer, CTRUN_E_AUTH, why);
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

static void on_proof(struct peer *peer, const struct ct_message *message)
{
    const struct ct_proof *proof = message->proof;
    struct admission *admission = peer->admission;
    struct ct_proof out;
    struct ct_seal seal = {0};

    peer->admission = NULL;
    if (admission_prove(admission, proof, &out, &seal)) {
        peer_send(peer, &(struct ct_message){CT_MESSAGE_SERVER_PROOF, .proof = &out});
        peer->outbox.seal = seal; /* what follows */
        admit(peer, admission_hello(admission));
    } else {
        turn_away(peer, CTRUN_E_AUTH,
                  "your token is not the one of this rendezvous: give the same "
                  "--rdzv-token-file or CTRUN_TOKEN on every node");
    }
    ct_seal_wipe(&seal);
    admission_destroy(admission);
}

/* The agent says the port of its end of the connection. A proxy between us has ports of its own: what its kernel acknowledges proves nothing. */
static void on_peer(struct peer *peer, const struct ct_message *message)
{
    const struct round_command command = {.kind = ROUND_DIRECT, .id = peer->id};
    const int port = ct_addr_port(&peer->conn->remote);

    if (port <= 0 || message->peer->port != port) {
        ct_log_often(&peer->dispatch->runs.comings, CTRUN_LOG_INFO,
                     "agent behind a proxy or a router host=%s its_port=%d seen=%d: a "
                     "pause of it looks like its loss",
                     peer->host, message->peer->port, port);
        return;
    }
    pause_send_peer(peer);
    run_step(peer->run, &command);
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

/* ---- What comes when --------------------------------------------------------------------- */

static void on_offer(struct peer *peer, const struct ct_message *message)
{
    peer->offer = *message->offer;
}

static void on_resume(struct peer *peer, const struct ct_message *message)
{
    peer->resume = *message->resume; /* who it is, HELLO and PROOF tell */
}

static void on_untimely(struct peer *peer, const struct ct_message *message)
{
    (void)message;
    peer_refuse(peer, CTRUN_E_PROTOCOL, "HELLO must come first, and once");
}

/* All that is for the round alone. */
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

/* Accepted for the current world only, and of the sender's own ranks; from group rank 0 also of all nodes. */
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
    counters_add_failure(&peer->dispatch->runs.counters, message->failure->cause);
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

/* What is not here is for the round when a member says it, and untimely otherwise. */
static const struct {
    enum stage stage;
    enum ct_message_kind kind;
    void (*handle)(struct peer *peer, const struct ct_message *message);
} handlers[] = {
    {STAGE_NEW, CT_MESSAGE_OFFER, on_offer},
    {STAGE_NEW, CT_MESSAGE_RESUME, on_resume},
    {STAGE_NEW, CT_MESSAGE_HELLO, on_hello},
    {STAGE_PROVING, CT_MESSAGE_PROOF, on_proof},
    {STAGE_MESSENGER, CT_MESSAGE_HA_PLAN, on_plan},
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
        turn_away(peer, CTRUN_E_VERSION, text);
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

/* Who is not let in yet has no more of our memory than its longest message needs. */
static size_t count_room(const struct peer *peer)
{
    const size_t most = CT_FRAME_HEADER_BYTES + CONN_UNPROVEN_FRAME_MAX_BYTES;

    return peer->run ? SIZE_MAX : most - ct_buf_length(&peer->in);
}

/* Takes the first `length` bytes of what came. False: nothing more is taken. */
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
    struct ct_list *it;

    ct_list_for_each(it, &dispatch->runs.list) {
        if (ct_list_entry(it, struct run, node)->round->state == ROUND_CLOSED)
            return true;
    }
    return false;
}

void dispatch_step_down(struct dispatch *dispatch)
{
    struct ct_list *it;

    dispatch->is_candidate = true;
    dispatch->ha.plan.epoch = 0;
    if (dispatch->commit)
        output_commit_drop(dispatch->commit);
    ct_list_for_each(it, &dispatch->pool->conns) {
        struct conn *conn = ct_list_entry(it, struct conn, node);

        if (conn->user != &agent_conn)
            continue;
        ((struct peer *)conn->context)->run = NULL;
        conn_close(conn, "another node is the rendezvous server");
    }
    runs_close(&dispatch->runs); /* another one decides from here on */
}

void dispatch_close(struct dispatch *dispatch)
{
    runs_close(&dispatch->runs);
}
