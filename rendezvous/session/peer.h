/* SPDX-License-Identifier: Apache-2.0 */
/* One agent's connection, as its run and its messages see it. */
#pragma once

#include "rendezvous/session/output_commit.h"
#include "worker_sdk/base/seldom.h"

struct admission;
struct dispatch;
struct run;

struct peer {
    struct dispatch *dispatch; /* for its own use */
    struct output_commit
        *commit; /* kept; NULL: none, or it is told where the run is, and leaves */
    struct ct_seldom *refused; /* kept: log lines about those that were */
    struct conn *conn;         /* that of `outbox` */
    struct outbox outbox;
    struct run *run; /* NULL: before HELLO, or refused, or not a member any more */
    uint64_t id;
    bool is_probe; /* version 0: a launcher that asks whether ctrun holds this port */
    struct ct_buf in;
    struct ct_offer offer;       /* zeroed: none came */
    struct admission *admission; /* between HELLO and PROOF; else NULL */
    struct ct_resume resume;     /* key 0: its HELLO is that of a new member */
    bool
        is_messenger; /* no member: it brings the plan of the run, which lives elsewhere */
    char host[CT_HOST_MAX];
    struct ct_job job; /* of its HELLO */
    bool serves;       /* the agent of this server's own process */
    bool has_reported; /* for the run's own etcd: it is told the plan */
};

/* Queues the message, held first if there is an output commit; closes the connection of an agent that does not read. */
void peer_send(struct peer *peer, const struct ct_message *message);
/* The last message that this agent gets. code: enum ctrun_code or -errno. */
void peer_refuse(struct peer *peer, int code, const char *text);
