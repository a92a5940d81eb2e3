/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/pause.h"

#include "worker_sdk/net/tcp.h"

void pause_send_peer(struct peer *peer)
{
    const struct ct_peer seen = {.port = (uint16_t)ct_addr_port(&peer->conn->remote)};

    peer_send(peer, &(struct ct_message){CT_MESSAGE_PEER, .peer = &seen});
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
    return true;
}
