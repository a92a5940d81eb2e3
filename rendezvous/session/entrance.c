/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/entrance.h"

#include <ctype.h>
#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "rendezvous/net/peer_uid.h"
#include "rendezvous/session/dispatch.h"
#include "rendezvous/session/endpoint_owner.h"
#include "rendezvous/session/run_room.h"
#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* ---- Refused ----------------------------------------------------------------------------- */

/* The name that it gives itself, for a line of its own: no sentence, no address. */
static void format_claim(char *dst, size_t size, const char *host)
{
    (void)ct_format(dst, size, "%.64s", host);
    for (char *at = dst; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(".-_", *at))
            *at = '?';
}

/* An agent that has proven nothing is named, and noted, by its address. */
static void note_refused(struct peer *peer, struct run *run, int code)
{
    char address[CT_ADDR_TEXT_MAX], claim[65], name[CT_HOST_MAX];
    const bool has_name = peer->host[0] && code != CTRUN_E_AUTH;

    ct_addr_format_host(address, &peer->conn->remote);
    format_claim(claim, sizeof claim, peer->host);
    (void)ct_format(name, sizeof name, claim[0] ? "%s (calls itself %s)" : "%s",
                    address, claim);
    round_note_refused(run->round, has_name ? peer->host : name,
                       has_name ? NULL : address, code, ct_now_ms());
}

/* Refuses an agent that wants to be a member; WAITING tells the nodes that wait for it. The timer
 * sends it: a step here would end leases after a pause of this process, before the heartbeats that
 * wait were read. */
void entrance_turn_away(struct peer *peer, int code, const char *text)
{
    const char *run_id = peer->dispatch->only_run_id;
    struct run *run = run_id ? run_find(&peer->dispatch->runs, run_id) : NULL;

    if (run && !peer->is_probe) {
        note_refused(peer, run, code);
        run_arm_timer(run);
    }
    peer_refuse(peer, code, text);
}

/* ---- A member, new or back --------------------------------------------------------------- */

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

/* TICKET lets the agent resume on another connection. */
static void send_ticket(struct peer *peer, const struct member_link *link)
{
    const struct ct_ticket ticket = {.id = link->id, .key = link->key};

    peer_send(peer, &(struct ct_message){CT_MESSAGE_TICKET, .ticket = &ticket});
}

/* 0 without random bytes: then a member cannot resume after its connection breaks. */
static uint64_t make_key(void)
{
    uint64_t key = 0;

    return getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key ? key : 0;
}

static struct member_link make_link(struct peer *peer, const struct ct_hello *hello)
{
    struct member_link link = {.id = peer->id,
                               .peer = peer,
                               .job = peer->job,
                               .serves = peer->serves,
                               .min_nodes = hello->min_nodes,
                               .max_nodes = hello->max_nodes};

    (void)ct_copy(link.host, sizeof link.host, peer->host); /* same size */
    ct_addr_format_host(link.seen_as, &peer->conn->remote);
    ct_addr_format_host(link.reached_at, &peer->conn->local);
    return link;
}

/* The agent tries again until its own time is over. The timer sends the note, as above. */
static void refuse_full(struct peer *peer, struct run *run)
{
    const struct conn_pool *pool = peer->dispatch->pool;
    char text[CT_REASON_MAX];

    (void)ct_format(text, sizeof text,
                    "the rendezvous server is full (%zu connections); %s",
                    pool->count_max,
                    peer->dispatch->only_run_id
                        ? "raise the hard limit of open files on its host (ulimit -Hn)"
                        : "raise its limit (ctrund --max-connections, ulimit -Hn)");
    round_note_refused(run->round, peer->host, NULL, -EXFULL, ct_now_ms());
    run_arm_timer(run);
    peer_refuse(peer, -EXFULL, text);
}

static void add_member(struct peer *peer, const struct ct_hello *hello, struct run *run)
{
    struct round_command command = {.kind = ROUND_ADD};
    struct member_link link;

    /* A new id: members are sorted by id, and with a token PROOFs may come in another order than
     * connections. */
    peer->id = ++peer->dispatch->runs.last_id;
    link = make_link(peer, hello);
    link.key = make_key();
    command.id = link.id;
    command.link = &link;
    if (!conn_prove(peer->conn, CONN_MEMBER)) {
        refuse_full(peer, run);
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

static const char new_launcher[] = "this rendezvous does not have the run: the "
                                   "launcher that served it before has ended, "
                                   "and the workers of its node too";

/* When the workers of the instance that this agent was in are dead: they have its lease, which may
 * be longer than that of the run here. */
static uint64_t other_until_ms(const struct dispatch *dispatch,
                               const struct ct_hello *hello, uint64_t now_ms)
{
    const uint64_t max_ms = admission_has_secret(&dispatch->rules)
                                ? RUN_MEMORY_LOST_MAX_MS
                                : RUN_MEMORY_REPORTED_MAX_MS;
    const uint64_t for_ms = round_outlive_ms(hello->lost_after_ms);

    return now_ms + (for_ms < max_ms ? for_ms : max_ms);
}

/* Workers of another instance of the run may live: no new one may start here for a while. */
static void note_other(struct dispatch *dispatch, const struct ct_hello *hello,
                       struct run *run)
{
    const uint64_t now_ms = ct_now_ms();
    const uint64_t until_ms = other_until_ms(dispatch, hello, now_ms);

    run_memory_note(&dispatch->runs.memory, hello->run_id, hello->generation, until_ms,
                    now_ms);
    if (run && run->round->generation == 0) {
        round_raise_floor(run->round, hello->generation);
        round_hold(run->round, now_ms);
        round_hold_until(run->round, until_ms, now_ms);
        run_arm_timer(run); /* a WAITING may be due now */
    }
}

/* The agent was a member before its connection broke, or before this server started. */
static void resume_member(struct peer *peer, const struct ct_hello *hello)
{
    const char *run_id = hello->run_id;
    struct run *run = run_find(&peer->dispatch->runs, run_id);
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = &peer->resume};
    const struct member_link link = make_link(peer, hello);
    const struct round_command command = {.kind = ROUND_RESUME,
                                          .id = peer->resume.id,
                                          .link = &link,
                                          .message = &message};

    if (!run) {
        run_memory_note(&peer->dispatch->runs.memory, run_id, peer->resume.generation,
                        other_until_ms(peer->dispatch, hello, ct_now_ms()),
                        ct_now_ms());
        peer_refuse(peer, CTRUN_E_LEADER_LOST,
                    peer->dispatch->only_run_id
                        ? new_launcher
                        : "this rendezvous does not have the run: it was restarted "
                          "without its journal, or the run has ended");
        return;
    }
    if (run_try(run, &command) == 0) {
        peer->run = run;
        peer->id = peer->resume.id;
        conn_clear_deadline(peer->conn);
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
                        : "the run continues without this node, which is no longer a "
                          "member: most likely nothing was received from it for too "
                          "long");
    }
    run_execute(run);
    /* Now that the member's earlier connection is closed, if it was still open. on_close() informs
     * the run, and the agent tries again. */
    if (peer->run && !conn_prove(peer->conn, CONN_MEMBER))
        conn_close(peer->conn, reject_sentence(REJECT_TOO_MANY));
}

/* ---- HELLO ------------------------------------------------------------------------------ */

/* True if this server does not serve the run id of this HELLO; then the agent was refused. */
static bool refuse_foreign(struct peer *peer, const struct ct_hello *hello)
{
    const char *ours = peer->dispatch->only_run_id;
    char text[CT_REASON_MAX], owner[128], job[128];

    if (!ours && hello->job_count > 0 && hello->job[0].wants_launcher) {
        entrance_turn_away(peer, CTRUN_E_WRONG_RUN,
                           "this is ctrund, which serves many runs, not the rendezvous "
                           "server of this job");
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
    entrance_turn_away(peer, CTRUN_E_WRONG_RUN, text);
    return true;
}

/* True if this agent has had workers of another instance of the run: then it was refused, and while
 * there are such agents the run does not start here. */
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
                "this rendezvous does not have the run that this node belongs to: most "
                "likely it was restarted");
    return true;
}

/* A node of a running run whose endpoint this is: see launcher/ha/ha_messenger.c. This run must not
 * start here; the next message of the node tells where the run is served. */
static void on_messenger(struct peer *peer, const struct ct_hello *hello)
{
    struct dispatch *dispatch = peer->dispatch;
    struct run *run = run_find(&dispatch->runs, hello->run_id);

    if ((run && run->round->settings.instance == hello->instance) ||
        peer->resume.key == dispatch->ha.plan.epoch) {
        conn_finish(peer->conn); /* this etcd has a run here */
        return;
    }
    note_other(dispatch, hello, run);
    peer->is_messenger = dispatch->ha.hooks != NULL;
    if (!peer->is_messenger)
        peer_refuse(peer, CTRUN_E_USAGE, "this rendezvous was started without --ha");
}

void entrance_on_plan(struct peer *peer, const struct ct_message *message)
{
    const struct ct_ha_plan *plan = message->ha_plan;
    const struct ha_hooks *hooks = peer->dispatch->ha.hooks;

    if (plan->epoch != 0 && plan->phase == CT_HA_ACTIVE)
        hooks->on_found(hooks->context, plan);
    peer_refuse(peer, CTRUN_E_CLOSED, "the plan was received");
}

/* True if there is room for another run; false: the agent was refused. */
static bool has_room(struct peer *peer)
{
    struct dispatch *dispatch = peer->dispatch;

    if (!admission_has_secret(&dispatch->rules) &&
        !run_room_make(&dispatch->runs, &peer->conn->remote)) {
        peer_refuse(peer, -ENOBUFS,
                    "this rendezvous server has too many runs of your address; give it "
                    "a token (ctrund --token-file), and it has no such limit");
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
        !peer->commit) { /* the agent came while another node was elected */
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
    add_member(peer, hello, run);
}

static void challenge(struct peer *peer, const struct admission_reply *reply)
{
    if (reply->has_offer)
        peer_send(peer, &(struct ct_message){CT_MESSAGE_OFFER, .offer = &reply->offer});
    peer_send(peer, &(struct ct_message){CT_MESSAGE_CHALLENGE,
                                         .challenge = &reply->challenge});
}

/* A secret proves more than the user. Who has closed his end already hides who he is. */
static bool is_other_user(const struct peer *peer)
{
    const struct dispatch *dispatch = peer->dispatch;

    return dispatch->is_for_one_user && !admission_has_secret(&dispatch->rules) &&
           peer_user_of(&peer->conn->remote, &peer->conn->local) != PEER_USER_OURS;
}

void entrance_on_hello(struct peer *peer, const struct ct_message *message)
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
        hello->instance == 0) /* else the key is of the earlier run */
        peer->job = hello->job[0];
    /* The owner of this run is told to an unproven client only if agents need no secret. */
    if (!admission_has_secret(&dispatch->rules) && refuse_foreign(peer, hello))
        return;
    if (!why && is_other_user(peer))
        why = "you are another user of its machine, and this rendezvous has no token: "
              "give all nodes the same --rdzv-token-file";
    if (why) {
        entrance_turn_away(peer, CTRUN_E_AUTH, why);
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

void entrance_on_proof(struct peer *peer, const struct ct_message *message)
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
        entrance_turn_away(
            peer, CTRUN_E_AUTH,
            peer->dispatch->rules.uses_munge
                ? "your proof by MUNGE is not valid here: start ctrun on every node as "
                  "the same user, with the same MUNGE key"
                : "your token is not the one of this rendezvous: give the same "
                  "--rdzv-token-file or CTRUN_TOKEN on every node");
    }
    ct_seal_wipe(&seal);
    admission_destroy(admission);
}
