/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/gate.h"

#include "rendezvous/peer.h"
#include "worker_sdk/base/clock.h"

void gate_init(struct gate *gate)
{
    atomic_init(&gate->until_ms, 0);
    atomic_init(&gate->kept, 0);
    atomic_init(&gate->wanted, 0);
    ct_list_init(&gate->held);
}

bool gate_is_open(const struct gate *gate)
{
    return atomic_load(&gate->kept) >= atomic_load(&gate->wanted) &&
           ct_now_ms() < atomic_load(&gate->until_ms);
}

bool gate_hold(struct gate *gate, struct peer *peer, const struct ct_message *message)
{
    const bool has_held = ct_buf_length(&peer->held) > 0;

    if (!has_held && gate_is_open(gate))
        return false;
    if (ct_seal_encode(&peer->seal, &peer->held, message) < 0)
        conn_close(peer->conn, "too much was held back for it");
    else if (!has_held)
        ct_list_add(&gate->held, &peer->held_node);
    return true;
}

static void empty(struct peer *peer)
{
    ct_list_remove(&peer->held_node);
    ct_buf_consume(&peer->held, ct_buf_length(&peer->held));
}

static void release(struct peer *peer)
{
    struct conn *conn = peer->conn;

    if (conn->state == CONN_OPEN) {
        if (ct_buf_append(conn->out, ct_buf_data(&peer->held),
                          ct_buf_length(&peer->held)) < 0)
            conn_close(conn, "it does not read what we send");
        else
            conn_flush(conn);
    }
    empty(peer);
}

void gate_release(struct gate *gate)
{
    while (!ct_list_is_empty(&gate->held) && gate_is_open(gate))
        release(ct_list_entry(gate->held.next, struct peer, held_node));
}

void gate_drop(struct gate *gate)
{
    while (!ct_list_is_empty(&gate->held))
        empty(ct_list_entry(gate->held.next, struct peer, held_node));
}
