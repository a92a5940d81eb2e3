/* SPDX-License-Identifier: Apache-2.0 */
/* Paused or lost: what the kernel's TCP knows of a silent agent's host. The rules stand in
 * worker_sdk/wire/message.h, what follows from them in round_pause.c. */
#pragma once

#include "rendezvous/round/member.h"
#include "rendezvous/session/peer.h"

/* Tells the agent the port that we see: something that its host has to acknowledge. */
void pause_send_peer(struct peer *peer);
/* True when the member's host lives: it has acknowledged all that we sent, or we are late
 * ourselves and have not read what it sent. */
bool pause_is_acknowledged(const struct member *member);
