/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_subtree.h"

#include <errno.h>
#include <string.h>

#include "launcher/ssh/ssh_conn.h"
#include "launcher/ssh/ssh_stage_receive.h"
#include "launcher/ssh/ssh_node.h"
#include "launcher/ssh/ssh_serve.h"
#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_piece.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

/* The hosts below this process, and perhaps this one. Each host's state only goes forward and
 * ends in a final one; the subtree is over when all have, and every connection is closed. */
struct ssh_subtree {
    struct ssh_subtree_options options;
    struct ssh_conn_options conn;
    uint32_t count;
    enum ssh_host_state *states;
    struct ct_list conns;
    struct ssh_node *node;
    struct ssh_stage_receive *intake; /* NULL: nothing was staged */
    struct ssh_serve *serve;
    bool has_gone; /* GO was told */
    bool is_paused;
    bool is_starting;
    bool is_over;
};

/* ---- States ------------------------------------------------------------------------------ */

static bool is_final(enum ssh_host_state state)
{
    return state >= SSH_HOST_FAILED;
}

enum ssh_host_state ssh_subtree_state(const struct ssh_subtree *part, uint32_t place)
{
    return part->states[place - part->options.job->first];
}

static void emit(const struct ssh_subtree *part, const struct ssh_message *message)
{
    static const char *const names[] = {
        [SSH_READY] = "ready", [SSH_FAILED] = "failed", [SSH_STARTED] = "started",
        [SSH_ENDED] = "ended", [SSH_LOST] = "lost",
    };
    struct ct_event event;

    if ((size_t)message->kind >= sizeof names / sizeof *names || !names[message->kind])
        return;
    ct_event_begin(&event, "host_state");
    ct_event_str(&event, "state", names[message->kind]);
    ct_event_str(&event, "host", ssh_job_host(part->options.job, message->host));
    ct_event_int(&event, "place", message->host);
    ct_event_int(&event, "code", message->code);
    ct_event_end(&event);
}

static void check_over(struct ssh_subtree *part)
{
    if (part->is_over || part->is_starting || !ct_list_is_empty(&part->conns))
        return;
    for (uint32_t i = 0; i < part->count; i++)
        if (!is_final(part->states[i]))
            return;
    part->is_over = true;
    part->options.on_over(part->options.context);
}

static struct ssh_conn *find_branch(const struct ssh_subtree *part, uint32_t place)
{
    struct ct_list *it;

    ct_list_for_each(it, &part->conns) {
        struct ssh_conn *conn = ct_list_entry(it, struct ssh_conn, node);

        if (place >= conn->first && place - conn->first < conn->count)
            return conn;
    }
    return NULL;
}

/* What a host of a connection needs has to go through that connection. Malformed, or out of memory: the
 * host gets nothing, and whoever waits for it says so. */
static void note_needs(struct ssh_subtree *part, const struct ssh_message *message)
{
    struct ssh_conn *conn = find_branch(part, message->host);

    if (!conn)
        return; /* this host: it tells what it needs for those above */
    if (conn->needs.size == 0 && stage_set_init(&conn->needs, STAGE_CHUNKS_MAX) < 0)
        return;
    (void)stage_set_decode(&conn->needs, message->data, message->length);
}

/* Everything that is told about a host of this part passes here.
 * message->host is one of ours: ssh_conn checks what comes from a connection before it passes it
 * on. */
static void on_message(void *context, const struct ssh_message *message)
{
    struct ssh_subtree *part = context;
    enum ssh_host_state *state =
        &part->states[message->host - part->options.job->first];

    if (is_final(*state))
        return;
    switch (message->kind) {
    case SSH_READY: *state = SSH_HOST_READY; break;
    case SSH_FAILED: *state = SSH_HOST_FAILED; break;
    case SSH_ENDED: *state = SSH_HOST_ENDED; break;
    case SSH_LOST: *state = SSH_HOST_LOST; break;
    case SSH_NEED: note_needs(part, message); break;
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
    emit(part, message);
    part->options.on_message(part->options.context, message);
}

static void tell(struct ssh_subtree *part, enum ssh_kind kind, uint32_t place, int code,
                 const char *text)
{
    const struct ssh_message message = {.kind = kind,
                                        .host = place,
                                        .code = code,
                                        .data = text,
                                        .length = strlen(text)};

    on_message(part, &message);
}

/* ---- Branches ---------------------------------------------------------------------------- */

static void spread(struct ssh_subtree *part, uint32_t first, uint32_t count);

static void on_branch_over(void *context, struct ssh_conn *conn, int code,
                           const char *why)
{
    struct ssh_subtree *part = context;
    /* copied: the connection is closed below */
    const uint32_t first = conn->first;
    const uint32_t count = conn->count;

    part->is_starting = true; /* it is not over before the rest was called */
    if (conn->is_open) {
        for (uint32_t i = first; i < first + count; i++)
            tell(part, SSH_LOST, i, code, why); /* but for those that have ended */
        ssh_conn_close(conn);
    } else {
        tell(part, SSH_FAILED, first, code, why);
        ssh_conn_close(conn);
        spread(part, first + 1, count - 1);
    }
    part->is_starting = false;
    part->options.on_room(part->options.context); /* it may have been the full one */
    check_over(part);
}

static void call(struct ssh_subtree *part, uint32_t first, uint32_t count)
{
    struct ctrun_error err = {.text = "out of memory"};
    struct ssh_conn *conn = ssh_conn_open(&part->conn, first, count, &err);

    if (conn) {
        ct_list_add(&part->conns, &conn->node);
        ssh_conn_pause(conn, part->is_paused);
        return;
    }
    for (uint32_t i = first; i < first + count; i++)
        tell(part, SSH_FAILED, i, CTRUN_E_EXEC, err.text);
}

static void spread(struct ssh_subtree *part, uint32_t first, uint32_t count)
{
    const uint32_t fanout = part->options.job->fanout;
    const uint32_t pieces = count < fanout ? count : fanout;

    for (uint32_t i = 0; i < pieces; i++) {
        const uint32_t begin = (uint32_t)((uint64_t)count * i / pieces);
        const uint32_t end = (uint32_t)((uint64_t)count * (i + 1) / pieces);

        call(part, first + begin, end - begin);
    }
}

/* ---- This host --------------------------------------------------------------------------- */

static void go(struct ssh_subtree *part, const struct ssh_message *message)
{
    const struct ssh_node_options options = {.loop = part->options.loop,
                                             .job = part->options.job,
                                             .place = part->options.here,
                                             .intake = part->intake,
                                             .context = part,
                                             .on_message = on_message};
    char endpoint[SSH_TEXT_MAX];
    struct ctrun_error err;

    part->has_gone = true;
    ssh_stage_receive_rest(part->intake);
    (void)ct_format(endpoint, sizeof endpoint, "%.*s", (int)message->length,
                    (const char *)message->data);
    if (ssh_node_open(&part->node, &options, endpoint, &err) < 0)
        tell(part, SSH_LOST, part->options.here, err.code, err.text);
    else
        ssh_node_pause(part->node, part->is_paused);
}

static void serve(struct ssh_subtree *part)
{
    const uint32_t place = part->options.here;
    char endpoint[SSH_TEXT_MAX];
    struct ctrun_error err;

    if (ssh_serve_open(&part->serve, part->options.job, place, endpoint,
                       sizeof endpoint, &err) < 0)
        tell(part, SSH_LOST, place, err.code, err.text);
    else
        tell(part, SSH_SERVING, place, 0, endpoint);
}

static void on_intake(void *context, const struct ssh_message *message)
{
    on_message(context, message);
    if (message->kind == SSH_FAILED)
        check_over(context);
}

static void take_in(struct ssh_subtree *part, const struct ssh_message *message)
{
    const struct ssh_stage_receive_options options = {.loop = part->options.loop,
                                                      .job = part->options.job,
                                                      .place = part->options.here,
                                                      .context = part,
                                                      .on_message = on_intake};

    if (!part->intake && !part->has_gone &&
        !(part->intake = ssh_stage_receive_open(&options)))
        tell(part, SSH_FAILED, part->options.here, CTRUN_E_STAGE, "out of memory");
    if (part->intake)
        ssh_stage_receive_take(part->intake, message);
}

static void tell_here(struct ssh_subtree *part, const struct ssh_message *message)
{
    const uint32_t place = part->options.here;

    if (ssh_subtree_state(part, place) != SSH_HOST_READY)
        return;
    if (message->kind == SSH_GO && !part->has_gone)
        go(part, message);
    else if (message->kind == SSH_SERVE && message->host == place)
        serve(part);
    else if (message->kind == SSH_SIGNAL)
        ssh_node_signal(part->node, message->code);
    else if (message->kind == SSH_STAGE || message->kind == SSH_PIECE)
        take_in(part, message);
}

/* Does anybody in that connection need it? */
static bool is_wanted(const struct ssh_conn *conn, const struct ssh_message *message)
{
    struct stage_piece piece;

    return message->kind != SSH_PIECE ||
           (stage_piece_decode(&piece, message->data, message->length) == 0 &&
            stage_set_has(&conn->needs, piece.chunk));
}

bool ssh_subtree_is_full(const struct ssh_subtree *part)
{
    struct ct_list *it;

    ct_list_for_each(it, &part->conns)
        if (ct_list_entry(it, struct ssh_conn, node)->is_full)
            return true;
    return false;
}

static void on_room(void *context)
{
    const struct ssh_subtree *part = context;

    if (!ssh_subtree_is_full(part))
        part->options.on_room(part->options.context);
}

uint32_t ssh_subtree_tell(struct ssh_subtree *part, const struct ssh_message *message)
{
    struct ct_list *it;
    struct ct_list *keep;
    uint32_t count = 0;

    ct_list_for_each_safe(it, keep, &part->conns) {
        struct ssh_conn *conn = ct_list_entry(it, struct ssh_conn, node);

        if (conn->is_open && is_wanted(conn, message)) {
            ssh_conn_send(conn, message);
            count++;
        }
    }
    if (part->options.here != SSH_NOWHERE)
        tell_here(part, message);
    check_over(part);
    return count;
}

void ssh_subtree_pause(struct ssh_subtree *part, bool is_paused)
{
    struct ct_list *it;

    if (part->is_paused == is_paused)
        return;
    part->is_paused = is_paused;
    ct_list_for_each(it, &part->conns)
        ssh_conn_pause(ct_list_entry(it, struct ssh_conn, node), is_paused);
    ssh_node_pause(part->node, is_paused);
}

/* ---- Life -------------------------------------------------------------------------------- */

int ssh_subtree_create(struct ssh_subtree **out,
                       const struct ssh_subtree_options *options)
{
    struct ssh_subtree *part = ct_zalloc(sizeof *part);

    if (!part)
        return -ENOMEM;
    part->options = *options;
    part->count = ssh_job_count(options->job);
    part->conn = (struct ssh_conn_options){.loop = options->loop,
                                           .job = options->job,
                                           .context = part,
                                           .on_message = on_message,
                                           .on_over = on_branch_over,
                                           .on_room = on_room};
    ct_list_init(&part->conns);
    if (!(part->states = ct_zalloc_array(part->count, sizeof *part->states))) {
        free(part);
        return -ENOMEM;
    }
    *out = part;
    return 0;
}

void ssh_subtree_start(struct ssh_subtree *part)
{
    const uint32_t first = part->options.job->first;
    const uint32_t here = part->options.here;

    part->is_starting = true;
    if (here == SSH_NOWHERE) {
        spread(part, first, part->count);
    } else {
        tell(part, SSH_READY, here, 0, "");
        spread(part, first, here - first);
        spread(part, here + 1, first + part->count - here - 1);
    }
    part->is_starting = false;
    check_over(part);
}

void ssh_subtree_reap(struct ssh_subtree *part)
{
    struct ct_list *it;
    struct ct_list *keep;

    ct_list_for_each_safe(it, keep, &part->conns)
        ssh_conn_reap(ct_list_entry(it, struct ssh_conn, node));
    ssh_node_reap(part->node);
    check_over(part);
}

void ssh_subtree_destroy(struct ssh_subtree *part)
{
    struct ct_list *it;
    struct ct_list *keep;

    if (!part)
        return;
    ct_list_for_each_safe(it, keep, &part->conns)
        ssh_conn_close(ct_list_entry(it, struct ssh_conn, node));
    ssh_node_close(part->node);
    ssh_stage_receive_close(part->intake);
    ssh_serve_close(part->serve);
    free(part->states);
    free(part);
}
