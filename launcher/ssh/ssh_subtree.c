/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_subtree.h"

#include <errno.h>

#include "launcher/ssh/ssh_conn.h"
#include "launcher/ssh/ssh_stage_receive.h"
#include "launcher/ssh/ssh_node.h"
#include "launcher/ssh/ssh_serve.h"
#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_piece.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

/* The hosts below this process, and perhaps this host. Each host's state only goes forward. The
 * subtree is over when all hosts are in a final state and every connection is closed. */
struct ssh_subtree {
    struct ssh_subtree_options options;
    struct ssh_conn_options conn;
    uint32_t count;
    enum ssh_host_state *states;
    struct ct_list conns;
    struct ssh_node *node;
    struct ssh_stage_receive *receive; /* NULL: nothing was staged */
    struct ssh_serve *serve;
    bool has_gone; /* GO was sent */
    bool is_paused;
    bool is_starting;
    bool is_over;
};

/* ---- States ------------------------------------------------------------------------------ */

static bool is_final(enum ssh_host_state state)
{
    return state >= SSH_HOST_FAILED;
}

enum ssh_host_state ssh_subtree_state(const struct ssh_subtree *subtree, uint32_t place)
{
    return subtree->states[place - subtree->options.job->first];
}

static void emit(const struct ssh_subtree *subtree, const struct ssh_message *message)
{
    static const char *const names[] = {
        [SSH_READY] = "ready", [SSH_FAILED] = "failed", [SSH_STARTED] = "started",
        [SSH_ENDED] = "ended", [SSH_LOST] = "lost",     [SSH_SAVING] = "saving",
    };

    if ((size_t)message->kind >= sizeof names / sizeof *names || !names[message->kind])
        return;
    ct_event_emit("host_state", CT_STR("state", names[message->kind]),
                  CT_STR("host", ssh_job_host(subtree->options.job, message->host)),
                  CT_INT("place", message->host), CT_INT("code", message->code));
}

static void check_over(struct ssh_subtree *subtree)
{
    if (subtree->is_over || subtree->is_starting || !ct_list_is_empty(&subtree->conns))
        return;
    for (uint32_t i = 0; i < subtree->count; i++)
        if (!is_final(subtree->states[i]))
            return;
    subtree->is_over = true;
    subtree->options.on_over(subtree->options.context);
}

static struct ssh_conn *find_conn(const struct ssh_subtree *subtree, uint32_t place)
{
    ct_list_for_each(struct ssh_conn, conn, &subtree->conns, node) {
        if (place >= conn->first && place - conn->first < conn->count)
            return conn;
    }
    return NULL;
}

/* Notes which chunks must be sent through the host's connection. If the message is malformed or
 * memory is short, the host gets no chunks, and the root reports a timeout. */
static void note_needs(struct ssh_subtree *subtree, const struct ssh_message *message)
{
    struct ssh_conn *conn = find_conn(subtree, message->host);

    if (!conn)
        return; /* this host: the message is for the root */
    if (conn->needs.size == 0 && stage_set_init(&conn->needs, STAGE_CHUNKS_MAX) < 0)
        return;
    (void)stage_set_decode(&conn->needs, message->data, message->length);
}

/* Handles every message about a host of this part. message->host is valid: ssh_conn has checked
 * the messages of its connection. */
static void on_message(void *context, const struct ssh_message *message)
{
    struct ssh_subtree *subtree = context;
    enum ssh_host_state *state =
        &subtree->states[message->host - subtree->options.job->first];

    if (is_final(*state))
        return;
    switch (message->kind) {
    case SSH_READY: *state = SSH_HOST_READY; break;
    case SSH_FAILED: *state = SSH_HOST_FAILED; break;
    case SSH_ENDED: *state = SSH_HOST_ENDED; break;
    case SSH_LOST: *state = SSH_HOST_LOST; break;
    case SSH_SAVING: *state = SSH_HOST_SAVING; break;
    case SSH_NEED: note_needs(subtree, message); break;
    case SSH_JOB:
    case SSH_STAGE:
    case SSH_PIECE:
    case SSH_STAGING:
    case SSH_STAGED:
    case SSH_SERVE:
    case SSH_GO:
    case SSH_SIGNAL:
    case SSH_SERVING:
    case SSH_OUTPUT:
    case SSH_WORDS:
    case SSH_STARTED: break;
    }
    emit(subtree, message);
    subtree->options.on_message(subtree->options.context, message);
}

static void report(struct ssh_subtree *subtree, enum ssh_kind kind, uint32_t place,
                   int code, const char *text)
{
    const struct ssh_message message = ssh_message_of_text(kind, place, code, text);

    on_message(subtree, &message);
}

/* ---- Branches ---------------------------------------------------------------------------- */

static void spread(struct ssh_subtree *subtree, uint32_t first, uint32_t count);

static void on_conn_over(void *context, struct ssh_conn *conn, int code,
                         const char *why)
{
    struct ssh_subtree *subtree = context;
    /* copied: the connection is closed below */
    const uint32_t first = conn->first;
    const uint32_t count = conn->count;

    subtree->is_starting = true; /* not over before the rest is called */
    if (conn->is_open) {
        for (uint32_t i = first; i < first + count; i++)
            report(subtree, SSH_LOST, i, code, why); /* ignored for ended hosts */
        ssh_conn_close(conn);
    } else {
        report(subtree, SSH_FAILED, first, code, why);
        ssh_conn_close(conn);
        spread(subtree, first + 1, count - 1);
    }
    subtree->is_starting = false;
    subtree->options.on_room(
        subtree->options.context); /* this connection may have been full */
    check_over(subtree);
}

static void call(struct ssh_subtree *subtree, uint32_t first, uint32_t count)
{
    struct ctrun_error err = {.text = "the ctrun that calls it is out of memory"};
    struct ssh_conn *conn = ssh_conn_open(&subtree->conn, first, count, &err);

    if (conn) {
        ct_list_add(&subtree->conns, &conn->node);
        ssh_conn_pause(conn, subtree->is_paused);
        return;
    }
    for (uint32_t i = first; i < first + count; i++)
        report(subtree, SSH_FAILED, i, CTRUN_E_EXEC, err.text);
}

static void spread(struct ssh_subtree *subtree, uint32_t first, uint32_t count)
{
    const uint32_t fanout = subtree->options.job->fanout;
    const uint32_t pieces = count < fanout ? count : fanout;

    for (uint32_t i = 0; i < pieces; i++) {
        const uint32_t begin = (uint32_t)((uint64_t)count * i / pieces);
        const uint32_t end = (uint32_t)((uint64_t)count * (i + 1) / pieces);

        call(subtree, first + begin, end - begin);
    }
}

/* ---- This host --------------------------------------------------------------------------- */

static void go(struct ssh_subtree *subtree, const struct ssh_message *message)
{
    const struct ssh_node_options options = {.loop = subtree->options.loop,
                                             .job = subtree->options.job,
                                             .place = subtree->options.here,
                                             .receive = subtree->receive,
                                             .context = subtree,
                                             .on_message = on_message};
    char endpoint[SSH_TEXT_MAX];
    struct ctrun_error err;

    subtree->has_gone = true;
    ssh_stage_receive_rest(subtree->receive);
    (void)ct_format(endpoint, sizeof endpoint, "%.*s", (int)message->length,
                    (const char *)message->data);
    if (ssh_node_open(&subtree->node, &options, endpoint, &err) < 0)
        report(subtree, SSH_LOST, subtree->options.here, err.code, err.text);
    else
        ssh_node_pause(subtree->node, subtree->is_paused);
}

static void serve(struct ssh_subtree *subtree)
{
    const uint32_t place = subtree->options.here;
    char endpoint[SSH_TEXT_MAX];
    struct ctrun_error err;

    if (ssh_serve_open(&subtree->serve, subtree->options.job, place, endpoint,
                       sizeof endpoint, &err) < 0)
        report(subtree, SSH_LOST, place, err.code, err.text);
    else
        report(subtree, SSH_SERVING, place, 0, endpoint);
}

static void on_receive(void *context, const struct ssh_message *message)
{
    on_message(context, message);
    if (message->kind == SSH_FAILED)
        check_over(context);
}

static void on_stage(struct ssh_subtree *subtree, const struct ssh_message *message)
{
    const struct ssh_stage_receive_options options = {.loop = subtree->options.loop,
                                                      .job = subtree->options.job,
                                                      .place = subtree->options.here,
                                                      .context = subtree,
                                                      .on_message = on_receive};

    if (!subtree->receive && !subtree->has_gone &&
        !(subtree->receive = ssh_stage_receive_open(&options)))
        report(subtree, SSH_FAILED, subtree->options.here, CTRUN_E_STAGE,
               "out of memory");
    if (subtree->receive)
        ssh_stage_receive_on_message(subtree->receive, message);
}

static void on_own_message(struct ssh_subtree *subtree,
                           const struct ssh_message *message)
{
    const uint32_t place = subtree->options.here;
    const enum ssh_host_state state = ssh_subtree_state(subtree, place);

    if (state != SSH_HOST_READY && state != SSH_HOST_SAVING)
        return;
    if (message->kind == SSH_GO && !subtree->has_gone)
        go(subtree, message);
    else if (message->kind == SSH_SERVE && message->host == place)
        serve(subtree);
    else if (message->kind == SSH_SIGNAL)
        ssh_node_signal(subtree->node, message->code);
    else if (message->kind == SSH_STAGE || message->kind == SSH_PIECE)
        on_stage(subtree, message);
}

/* True when a host behind that connection needs the message. */
static bool is_wanted(const struct ssh_conn *conn, const struct ssh_message *message)
{
    struct stage_piece piece;

    return message->kind != SSH_PIECE ||
           (stage_piece_decode(&piece, message->data, message->length) == 0 &&
            stage_set_has(&conn->needs, piece.chunk));
}

bool ssh_subtree_is_full(const struct ssh_subtree *subtree)
{
    ct_list_for_each(struct ssh_conn, conn, &subtree->conns, node)
        if (conn->is_full)
            return true;
    return false;
}

static void on_room(void *context)
{
    const struct ssh_subtree *subtree = context;

    if (!ssh_subtree_is_full(subtree))
        subtree->options.on_room(subtree->options.context);
}

uint32_t ssh_subtree_send(struct ssh_subtree *subtree,
                          const struct ssh_message *message)
{
    uint32_t count = 0;

    ct_list_for_each_safe(struct ssh_conn, conn, &subtree->conns, node) {
        if (conn->is_open && is_wanted(conn, message)) {
            ssh_conn_send(conn, message);
            count++;
        }
    }
    if (subtree->options.here != SSH_NOWHERE)
        on_own_message(subtree, message);
    check_over(subtree);
    return count;
}

void ssh_subtree_pause(struct ssh_subtree *subtree, bool is_paused)
{
    if (subtree->is_paused == is_paused)
        return;
    subtree->is_paused = is_paused;
    ct_list_for_each(struct ssh_conn, conn, &subtree->conns, node)
        ssh_conn_pause(conn, is_paused);
    ssh_node_pause(subtree->node, is_paused);
}

/* ---- Life -------------------------------------------------------------------------------- */

int ssh_subtree_create(struct ssh_subtree **out,
                       const struct ssh_subtree_options *options)
{
    struct ssh_subtree *subtree = ct_zalloc(sizeof *subtree);

    if (!subtree)
        return -ENOMEM;
    subtree->options = *options;
    subtree->count = ssh_job_count(options->job);
    subtree->conn = (struct ssh_conn_options){.loop = options->loop,
                                              .job = options->job,
                                              .context = subtree,
                                              .on_message = on_message,
                                              .on_over = on_conn_over,
                                              .on_room = on_room};
    ct_list_init(&subtree->conns);
    if (!(subtree->states = ct_zalloc_array(subtree->count, sizeof *subtree->states))) {
        free(subtree);
        return -ENOMEM;
    }
    *out = subtree;
    return 0;
}

void ssh_subtree_start(struct ssh_subtree *subtree)
{
    const uint32_t first = subtree->options.job->first;
    const uint32_t here = subtree->options.here;

    subtree->is_starting = true;
    if (here == SSH_NOWHERE) {
        spread(subtree, first, subtree->count);
    } else {
        report(subtree, SSH_READY, here, 0, "");
        spread(subtree, first, here - first);
        spread(subtree, here + 1, first + subtree->count - here - 1);
    }
    subtree->is_starting = false;
    check_over(subtree);
}

void ssh_subtree_reap(struct ssh_subtree *subtree)
{
    ct_list_for_each_safe(struct ssh_conn, conn, &subtree->conns, node)
        ssh_conn_reap(conn);
    ssh_node_reap(subtree->node);
    check_over(subtree);
}

void ssh_subtree_destroy(struct ssh_subtree *subtree)
{
    if (!subtree)
        return;
    ct_list_for_each_safe(struct ssh_conn, conn, &subtree->conns, node)
        ssh_conn_close(conn);
    ssh_node_close(subtree->node);
    ssh_stage_receive_close(subtree->receive);
    ssh_serve_close(subtree->serve);
    free(subtree->states);
    free(subtree);
}
