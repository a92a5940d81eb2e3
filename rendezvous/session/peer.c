/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/peer.h"

#include "worker_sdk/base/str.h"

void peer_send(struct peer *peer, const struct ct_message *message)
{
    output_commit_send(peer->commit, &peer->outbox, message);
}

void peer_refuse(struct peer *peer, int code, const char *text)
{
    struct ct_refuse out = {.code = code, .version = CT_FRAME_VERSION};

    if (!peer->is_probe)
        ct_log_seldom(peer->refused,
                      code == CTRUN_E_OTHER_JOB ? CTRUN_LOG_WARN : CTRUN_LOG_INFO,
                      "agent refused host=%s error=%s: %s", peer->host,
                      ct_error_name(code), text);
    if (code == CTRUN_E_AUTH)
        conn_note(peer->conn, REJECT_UNPROVEN);
    (void)ct_copy(out.text, sizeof out.text, text); /* our own words */
    peer_send(peer, &(struct ct_message){CT_MESSAGE_REFUSE, .refuse = &out});
    conn_finish(peer->conn);
}
