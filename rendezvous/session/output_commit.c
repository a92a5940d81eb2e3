/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/output_commit.h"

#include <errno.h>
#include <string.h>

#include "rendezvous/net/conn_limits.h"
#include "worker_sdk/base/clock.h"

void output_commit_init(struct output_commit *commit)
{
    atomic_init(&commit->until_ms, 0);
    atomic_init(&commit->kept, 0);
    atomic_init(&commit->wanted, 0);
    atomic_init(&commit->renewed_ms, 0);
    ct_list_init(&commit->held);
    ct_list_init(&commit->owed);
    commit->on_owed = NULL;
}

/* On the server's thread. Only this thread raises `wanted`, so `wanted` cannot rise between the two
 * loads. */
bool output_commit_may_send(const struct output_commit *commit)
{
    return atomic_load(&commit->kept) >= atomic_load(&commit->wanted) &&
           ct_now_ms() < atomic_load(&commit->until_ms);
}

/* ---- Messages to one agent --------------------------------------------------------------- */

void outbox_init(struct outbox *outbox, struct conn *conn)
{
    *outbox = (struct outbox){.conn = conn};
    ct_buf_init(&outbox->held, CONN_OUT_MAX_BYTES);
    ct_list_init(&outbox->held_node);
    ct_list_init(&outbox->owed_node);
}

void outbox_deinit(struct outbox *outbox)
{
    ct_seal_wipe(&outbox->seal);
    ct_list_remove(&outbox->held_node);
    ct_list_remove(&outbox->owed_node);
    ct_buf_deinit(&outbox->held);
}

static const char not_read[] = "it does not read what the server sends";

/* A message was not appended. `full` is the reason when the buffer has reached its maximum. */
static void close_unsent(struct conn *conn, int rc, const char *full)
{
    conn_close(conn, rc == -ENOBUFS  ? full
                     : rc == -ENOMEM ? "the rendezvous server is out of memory"
                                     : strerror(-rc));
}

/* While an earlier message is held, later ones are held too, even if they could be sent by now: an
 * agent gets its messages in order. */
bool output_commit_hold(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message)
{
    const bool has_held = ct_buf_length(&to->held) > 0;
    int rc;

    if (!has_held && output_commit_may_send(commit))
        return false;
    if ((rc = ct_message_encode(&to->held, message)) < 0)
        close_unsent(to->conn, rc, "too many messages to it wait for the journal");
    else if (!has_held)
        ct_list_add(&commit->held, &to->held_node);
    return true;
}

/* Not held are the messages of a handshake, which tell nothing of the run and are never sealed, and
 * a refusal. That is the last message: what is held then is never sent. */
static bool is_free(enum ct_message_kind kind)
{
    return kind == CT_MESSAGE_OFFER || kind == CT_MESSAGE_CHALLENGE ||
           kind == CT_MESSAGE_SERVER_PROOF || kind == CT_MESSAGE_REFUSE;
}

void output_commit_send(struct output_commit *commit, struct outbox *to,
                        const struct ct_message *message)
{
    struct conn *conn = to->conn;
    int rc;

    if (conn->state != CONN_OPEN)
        return;
    if (commit && !is_free(message->kind) && output_commit_hold(commit, to, message))
        return;
    if ((rc = ct_seal_encode(&to->seal, conn->out, message)) < 0)
        close_unsent(conn, rc, not_read);
    else
        conn_flush(conn);
}

/* Removes the outbox from the list, so that a loop over the list ends, also if the connection was
 * closed meanwhile. */
static void empty(struct outbox *outbox)
{
    ct_list_remove(&outbox->held_node);
    ct_buf_consume(&outbox->held, ct_buf_length(&outbox->held));
}

/* Sealed only now: an encrypted link takes messages in the order of their seals, and a refusal
 * passes what is held. */
static int seal_held(struct outbox *outbox)
{
    struct ct_frame frame;
    int taken, rc = 0;

    while (rc == 0 &&
           (taken = ct_frame_decode(ct_buf_data(&outbox->held),
                                    ct_buf_length(&outbox->held), &frame)) > 0) {
        rc = ct_seal_frame(&outbox->seal, outbox->conn->out, &frame);
        ct_buf_consume(&outbox->held, (size_t)taken);
    }
    return rc;
}

static void release(struct outbox *outbox)
{
    struct conn *conn = outbox->conn;
    int rc;

    if (conn->state == CONN_OPEN) {
        if ((rc = seal_held(outbox)) < 0)
            close_unsent(conn, rc, not_read);
        else
            conn_flush(conn);
    }
    empty(outbox);
}

/* ---- Acknowledgements -------------------------------------------------------------------- */

static void send_ack(struct output_commit *commit, struct outbox *to,
                     const struct ct_heartbeat *heartbeat)
{
    output_commit_send(
        commit, to,
        &(struct ct_message){CT_MESSAGE_HEARTBEAT_ACK, .heartbeat = heartbeat});
}

void output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                               const struct ct_heartbeat *heartbeat)
{
    const bool is_waiting = to->owed[0].arrived_ms > 0;

    if (!commit) {
        send_ack(commit, to, heartbeat);
        return;
    }
    /* Keep the oldest heartbeat, since a renewal may be due for it; the newest one replaces those
     * between. */
    to->owed[is_waiting] = (struct output_commit_owed){ct_now_ms(), *heartbeat};
    if (!is_waiting)
        ct_list_add(&commit->owed, &to->owed_node);
    if (commit->on_owed)
        commit->on_owed(commit->context);
}

/* Acknowledges what the renewal covers. False if a heartbeat still waits. A renewal that began
 * after the newest heartbeat covers both. */
static bool pay(struct output_commit *commit, struct outbox *to, uint64_t renewed_ms)
{
    while (to->owed[0].arrived_ms > 0 &&
           output_commit_may_acknowledge(to->owed[0].arrived_ms, renewed_ms)) {
        send_ack(commit, to, &to->owed[0].heartbeat);
        to->owed[0] = to->owed[1];
        to->owed[1] = (struct output_commit_owed){0};
    }
    return to->owed[0].arrived_ms == 0;
}

static void pay_all(struct output_commit *commit)
{
    const uint64_t renewed_ms = atomic_load(&commit->renewed_ms);
    bool is_left = false;

    ct_list_for_each_safe(struct outbox, to, &commit->owed, owed_node) {
        if (pay(commit, to, renewed_ms))
            ct_list_remove(&to->owed_node);
        else
            is_left = true;
    }
    if (is_left && commit->on_owed)
        commit->on_owed(commit->context);
}

void output_commit_release(struct output_commit *commit)
{
    pay_all(commit);
    /* Checked for each agent: the lease may end in between. */
    while (!ct_list_is_empty(&commit->held) && output_commit_may_send(commit))
        release(ct_list_entry(commit->held.next, struct outbox, held_node));
}

void output_commit_drop(struct output_commit *commit)
{
    while (!ct_list_is_empty(&commit->held))
        empty(ct_list_entry(commit->held.next, struct outbox, held_node));
    while (!ct_list_is_empty(&commit->owed)) {
        struct outbox *to = ct_list_entry(commit->owed.next, struct outbox, owed_node);

        memset(to->owed, 0, sizeof to->owed);
        ct_list_remove(&to->owed_node);
    }
}
