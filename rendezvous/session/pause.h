/* SPDX-License-Identifier: Apache-2.0 */
/* Paused or lost: what the kernel's TCP knows about the host of a silent agent. The rules are in
 * worker_sdk/wire/message.h, the consequences in round_resume.c. */
#pragma once

#include "rendezvous/round/member.h"
#include "rendezvous/session/peer.h"

/* Sends PEER with the port of the agent that we see: the agent's host has to acknowledge it. */
void pause_send_peer(struct peer *peer);
/* True if the member's host lives: it has acknowledged all that we sent, or we are late and have
 * not read all that it sent. */
bool pause_is_acknowledged(const struct member *member);
