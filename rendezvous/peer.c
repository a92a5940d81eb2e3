/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/peer.h"

#include "rendezvous/gate.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

void peer_send(struct peer *peer, const struct ct_message *message)
{
    struct gate *gate = peer->dispatch->gate;
    struct conn *conn = peer->conn;

    if (conn->state != CONN_OPEN)
        return;
    if (gate && message->kind != CT_MESSAGE_REFUSE && gate_hold(gate, peer, message))
        return;
    if (ct_seal_encode(&peer->seal, conn->out, message) < 0)
        conn_close(conn, "it does not read what we send");
    else
        conn_flush(conn);
}

void peer_refuse(struct peer *peer, int code, const char *text)
{
    struct ct_message *out = &peer->dispatch->out;

    ct_log(peer->is_probe ? CTRUN_LOG_DEBUG : CTRUN_LOG_INFO,
           "agent refused host=%s error=%s: %s", peer->host, ct_error_name(code), text);
    if (code == CTRUN_E_AUTH)
        conn_note(peer->conn, STRANGER_UNPROVEN);
    out->kind = CT_MESSAGE_REFUSE;
    out->refuse = (struct ct_refuse){.code = code, .version = CT_FRAME_VERSION};
    (void)ct_copy(out->refuse.text, sizeof out->refuse.text, text); /* our own words */
    peer_send(peer, out);
    conn_finish(peer->conn);
}
