/* SPDX-License-Identifier: Apache-2.0 */
/* High availability without an administrator (--ha): the first three or five nodes of a run run an
 * etcd of the run's own, the rendezvous moves into it, and from then on another node serves when
 * the one that does is lost: leader_candidate.h, election.h.
 *
 *     agents ──HA_REPORT──> server ──> its node's ha: ha_machine.h ──HA_PLAN──> agents ──> their ha
 *
 * A thread on each node. It keeps this node's member as the plan says (ha_keeper.h), follows the
 * etcd once the plan is ACTIVE, and makes the plan while this node serves. */
#pragma once

#include "launcher/etcd/leader_candidate.h"
#include "launcher/ha/ha_keeper.h"
#include "rendezvous/session/ha_relay.h"

struct ha;

struct ha_options {
    const struct config *config;        /* kept */
    const struct addresses *addresses;  /* kept */
    const struct ha_keeper *keeper;     /* kept */
    struct leader_candidate *candidate; /* kept */
};

/* 0 or a code. Nothing runs yet. */
int ha_create(struct ha **out, const struct ha_options *options,
              struct ctrun_error *err);
/* For server_options; lives as long as the ha. */
const struct ha_hooks *ha_hooks(struct ha *ha);
/* The server listens at that port. is_founder: it serves, and `reached`, kept, is where: an endpoint
 * that is a number, or this machine's loopback, is the one address that it listens at. `endpoint`,
 * kept, is where all nodes begin. 0 or a code. */
int ha_start(struct ha *ha, struct server *server, uint16_t port, bool is_founder,
             const struct addresses *reached, const struct rdzv_endpoint *endpoint,
             struct ctrun_error *err);
/* For agent_options.ha; any thread. */
int ha_wake_fd(const struct ha *ha);
bool ha_fill_report(struct ha *ha, const struct ct_addr *local, uint64_t instance,
                    uint64_t generation, struct ct_ha_report *out);
void ha_on_plan(struct ha *ha, const struct ct_ha_plan *plan);
bool ha_finds(struct ha *ha);
/* Why the run does not yet survive the loss of the node that serves the rendezvous. Static. */
const char *ha_why_not(struct ha *ha);
/* Ends the thread; etcd continues, so that the candidate can resign. */
void ha_stop(struct ha *ha);
/* Ends etcd; nothing of it is left. NULL is fine. */
void ha_destroy(struct ha *ha);
