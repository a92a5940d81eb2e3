/* SPDX-License-Identifier: Apache-2.0 */
/* One agent's connection, as its run and its messages see it. */
#ifndef RENDEZVOUS_PEER_H
#define RENDEZVOUS_PEER_H

#include "rendezvous/dispatch.h"

struct peer {
    struct dispatch *dispatch;
    struct conn *conn; /* NULL: it is closing */
    struct run *run;   /* NULL: before HELLO, or refused, or not a member any more */
    uint64_t id;
    bool is_probe; /* version 0: a launcher that asks whether ctrun holds this port */
    struct ct_buf in;
    struct ct_offer offer; /* zeroed: none came */
    struct ct_seal seal;
    struct admission *admission; /* between HELLO and PROOF; else NULL */
    struct ct_resume resume;     /* key 0: its HELLO is that of a new member */
    char host[CT_HOST_MAX];
    struct ct_heartbeat owed; /* not acknowledged yet: others may go on without us */
    bool is_owed;
    struct ct_buf held; /* with a gate: not said yet */
    struct ct_list held_node;
};

/* Queues the message, behind the gate if there is one; closes the connection of an agent that does not read. */
void peer_send(struct peer *peer, const struct ct_message *message);
/* The last message that this agent gets. code: enum ctrun_code or -errno. */
void peer_refuse(struct peer *peer, int code, const char *text);

#endif
