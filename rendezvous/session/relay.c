/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/relay.h"

#include "worker_sdk/base/str.h"

void relay_signal(const struct peer *peer, const struct ct_signal *message)
{
    const struct round *round = peer->run->round;
    struct ct_signal signal = *message;
    const struct ct_message out = {CT_MESSAGE_SIGNAL, .signal = &signal};

    if (message->generation != round->generation)
        return; /* of a world that is no more */
    (void)ct_copy(signal.host, sizeof signal.host, peer->host); /* same size */
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->link.id != peer->id && member->link.peer &&
            member_is_in_world(member))
            peer_send(member->link.peer, &out);
    }
}
