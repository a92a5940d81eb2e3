/* SPDX-License-Identifier: Apache-2.0 */
/* The server's part for the run's own etcd (--ha): it passes on the agents' reports, and sends the
 * plan to all agents. launcher/ha/ decides. */
#pragma once

#include "rendezvous/session/peer.h"
#include "rendezvous/session/run.h"

/* Called on the server's thread. */
struct ha_hooks {
    void *context;
    /* `peer` names the connection until on_gone. */
    void (*on_report)(void *context, uint64_t peer, const struct ct_ha_report *report);
    void (*on_gone)(void *context, uint64_t peer);
    /* The run is served elsewhere, with this plan: one of its nodes reported it to a server that
     * was about to start the run. */
    void (*on_found)(void *context, const struct ct_ha_plan *plan);
};

struct ha_relay {
    const struct ha_hooks *hooks; /* borrowed; NULL: the run has no own etcd */
    struct ct_ha_plan plan;       /* epoch 0: none */
};

/* HA_REPORT: from now on the agent gets the plan. */
void ha_relay_on_report(const struct ha_relay *relay, struct peer *peer,
                        const struct ct_ha_report *report);
/* The connection is closed. */
void ha_relay_drop(const struct ha_relay *relay, struct peer *peer);
/* Tells a node that connected to a server which does not serve its run where the run is served. */
void ha_relay_send_where(const struct ha_relay *relay, struct peer *peer);
/* Sets the plan (copied) and sends it to all agents that have reported. Once it is active, other
 * servers may be elected: runs here are then kept as an elected server keeps them. */
void ha_relay_send(struct ha_relay *relay, struct runs *runs,
                   const struct ct_ha_plan *plan);
