/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/pause.h"

#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/tcp.h"

void pause_send_peer(struct peer *peer)
{
    struct ct_message *out = &peer->dispatch->out;

    out->kind = CT_MESSAGE_PEER;
    out->peer.port = (uint16_t)ct_addr_port(&peer->conn->remote);
    peer_send(peer, out);
}

/* A proxy between us has ports of its own: what its kernel acknowledges proves nothing. */
void pause_take_peer(struct peer *peer, const struct ct_peer *message)
{
    const struct round_command command = {.kind = ROUND_DIRECT, .id = peer->id};
    const int port = ct_addr_port(&peer->conn->remote);

    if (port <= 0 || message->port != port) {
        ct_info(
            "agent behind a proxy or a router host=%s its_port=%d seen=%d: it cannot "
            "be told from lost when it is paused",
            peer->host, message->port, port);
        return;
    }
    pause_send_peer(peer);
    run_step(peer->run, &command);
}

static void tell(const struct member *member)
{
    struct ct_event event;

    ct_warn("agent is silent, but its host answers: paused host=%s", member->link.host);
    ct_event_begin(&event, "member_paused");
    ct_event_str(&event, "host", member->link.host);
    ct_event_int(&event, "generation", (int64_t)member->start.generation);
    ct_event_end(&event);
}

bool pause_is_acknowledged(const struct member *member)
{
    const struct peer *peer = member->link.peer;
    struct ct_tcp_view view;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&peer->conn->tcp, &fd) < 0 ||
        ct_tcp_look(fd, &view) < 0)
        return false;
    if (!view.has_unread &&
        (!view.is_open || !view.is_acknowledged || ct_buf_length(peer->conn->out) > 0 ||
         peer->conn->is_writing))
        return false;
    if (!member->is_paused)
        tell(member);
    return true;
}
