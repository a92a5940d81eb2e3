/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/gate.h"

#include <string.h>

#include "rendezvous/net/conn_limits.h"
#include "worker_sdk/base/clock.h"

void gate_init(struct gate *gate)
{
    atomic_init(&gate->until_ms, 0);
    atomic_init(&gate->kept, 0);
    atomic_init(&gate->wanted, 0);
    atomic_init(&gate->renewed_ms, 0);
    ct_list_init(&gate->held);
    ct_list_init(&gate->owed);
    gate->on_owed = NULL;
}

/* On the server's thread, which alone raises `wanted`: so it cannot rise between the two loads. */
bool gate_is_open(const struct gate *gate)
{
    return atomic_load(&gate->kept) >= atomic_load(&gate->wanted) &&
           ct_now_ms() < atomic_load(&gate->until_ms);
}

/* ---- What goes to one agent -------------------------------------------------------------- */

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

/* Behind something that is held everything is held, also when the gate is open again: an agent
 * gets its messages in order. */
bool gate_hold(struct gate *gate, struct outbox *to, const struct ct_message *message)
{
    const bool has_held = ct_buf_length(&to->held) > 0;

    if (!has_held && gate_is_open(gate))
        return false;
    if (ct_seal_encode(&to->seal, &to->held, message) < 0)
        conn_close(to->conn, "too much was held back for it");
    else if (!has_held)
        ct_list_add(&gate->held, &to->held_node);
    return true;
}

void gate_send(struct gate *gate, struct outbox *to, const struct ct_message *message)
{
    struct conn *conn = to->conn;

    if (conn->state != CONN_OPEN)
        return;
    if (gate && message->kind != CT_MESSAGE_REFUSE && gate_hold(gate, to, message))
        return;
    if (ct_seal_encode(&to->seal, conn->out, message) < 0)
        conn_close(conn, "it does not read what we send");
    else
        conn_flush(conn);
}

static void empty(struct outbox *outbox)
{
    ct_list_remove(&outbox->held_node);
    ct_buf_consume(&outbox->held, ct_buf_length(&outbox->held));
}

static void release(struct outbox *outbox)
{
    struct conn *conn = outbox->conn;

    if (conn->state == CONN_OPEN) {
        if (ct_buf_append(conn->out, ct_buf_data(&outbox->held),
                          ct_buf_length(&outbox->held)) < 0)
            conn_close(conn, "it does not read what we send");
        else
            conn_flush(conn);
    }
    empty(outbox);
}

/* ---- Acknowledgements -------------------------------------------------------------------- */

static void send_ack(struct gate *gate, struct outbox *to,
                     const struct ct_heartbeat *heartbeat)
{
    gate_send(gate, to,
              &(struct ct_message){CT_MESSAGE_HEARTBEAT_ACK, .heartbeat = heartbeat});
}

void gate_acknowledge(struct gate *gate, struct outbox *to,
                      const struct ct_heartbeat *heartbeat)
{
    const bool is_waiting = to->owed[0].arrived_ms > 0;

    if (!gate) {
        send_ack(gate, to, heartbeat);
        return;
    }
    /* The oldest stays, since a renewal may be due for it, and the newest replaces those
     * between: they say the same. */
    to->owed[is_waiting] = (struct gate_owed){ct_now_ms(), *heartbeat};
    if (!is_waiting)
        ct_list_add(&gate->owed, &to->owed_node);
    if (gate->on_owed)
        gate->on_owed(gate->context);
}

/* False when something is still owed. */
static bool pay(struct gate *gate, struct outbox *to, uint64_t renewed_ms)
{
    while (to->owed[0].arrived_ms > 0 &&
           gate_may_acknowledge(to->owed[0].arrived_ms, renewed_ms)) {
        send_ack(gate, to, &to->owed[0].heartbeat);
        to->owed[0] = to->owed[1];
        to->owed[1] = (struct gate_owed){0};
    }
    return to->owed[0].arrived_ms == 0;
}

static void pay_all(struct gate *gate)
{
    const uint64_t renewed_ms = atomic_load(&gate->renewed_ms);
    bool is_left = false;
    struct ct_list *it, *keep;

    ct_list_for_each_safe(it, keep, &gate->owed) {
        struct outbox *to = ct_list_entry(it, struct outbox, owed_node);

        if (pay(gate, to, renewed_ms))
            ct_list_remove(&to->owed_node);
        else
            is_left = true;
    }
    if (is_left && gate->on_owed)
        gate->on_owed(gate->context);
}

void gate_release(struct gate *gate)
{
    pay_all(gate);
    while (!ct_list_is_empty(&gate->held) && gate_is_open(gate))
        release(ct_list_entry(gate->held.next, struct outbox, held_node));
}

void gate_drop(struct gate *gate)
{
    while (!ct_list_is_empty(&gate->held))
        empty(ct_list_entry(gate->held.next, struct outbox, held_node));
    while (!ct_list_is_empty(&gate->owed)) {
        struct outbox *to = ct_list_entry(gate->owed.next, struct outbox, owed_node);

        memset(to->owed, 0, sizeof to->owed);
        ct_list_remove(&to->owed_node);
    }
}
