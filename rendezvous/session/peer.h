/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of one agent, for its run and for message handlers. */
#pragma once

#include "rendezvous/session/admission.h"
#include "rendezvous/session/output_commit.h"
#include "worker_sdk/base/seldom.h"

struct dispatch;
struct run;

struct peer {
    struct dispatch *dispatch; /* for dispatch.c only */
    struct output_commit
        *commit; /* borrowed; NULL: none, or the agent is only told where its run is */
    struct ct_seldom *refused; /* borrowed: log lines about refused agents */
    struct conn *conn;         /* that of `outbox` */
    struct outbox outbox;
    struct run *run; /* NULL: before HELLO, or refused, or not a member any more */
    uint64_t id;
    bool is_probe; /* version 0: a launcher that checks who holds this port */
    struct ct_buf in;
    struct admission_offer offer;
    struct admission *admission; /* between HELLO and PROOF; else NULL */
    struct ct_resume resume;     /* key 0: no RESUME, the HELLO is of a new member */
    bool
        is_messenger; /* no member: brings the plan of the run, which is served elsewhere */
    char host[CT_HOST_MAX];
    struct ct_job job; /* of its HELLO */
    bool serves;       /* the agent of this server's own process */
    bool has_reported; /* for the run's own etcd: gets the plan */
};

/* Queues the message, held first if there is an output commit; closes the connection of an agent that does not read. */
void peer_send(struct peer *peer, const struct ct_message *message);
/* Sends REFUSE, the last message to this agent. code: enum ctrun_code or -errno. */
void peer_refuse(struct peer *peer, int code, const char *text);
