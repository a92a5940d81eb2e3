/* SPDX-License-Identifier: Apache-2.0 */
/* The run's own etcd (--ha), as far as the rendezvous server has to do with it: it passes on what
 * agents report, and tells all of them the plan. Who decides is launcher/ha/. */
#pragma once

#include "rendezvous/session/peer.h"
#include "rendezvous/session/run.h"

/* Called on the server's thread. */
struct ha_hooks {
    void *context;
    /* `peer` names the connection until on_gone. */
    void (*on_report)(void *context, uint64_t peer, const struct ct_ha_report *report);
    void (*on_gone)(void *context, uint64_t peer);
    /* The run lives elsewhere, with this plan: a node of it says so to a server that founds it. */
    void (*on_found)(void *context, const struct ct_ha_plan *plan);
};

struct ha_relay {
    const struct ha_hooks *hooks; /* kept; NULL: the run has no etcd of its own */
    struct ct_ha_plan plan;       /* epoch 0: none */
};

/* HA_REPORT: the agent hears the plan from now on. */
void ha_relay_on_report(const struct ha_relay *relay, struct peer *peer,
                        const struct ct_ha_report *report);
/* The connection is closed. */
void ha_relay_drop(const struct ha_relay *relay, struct peer *peer);
/* Where the run is, for a node that asks at a server which does not serve it. */
void ha_relay_send_where(const struct ha_relay *relay, struct peer *peer);
/* The plan from now on, copied; told to all agents that have reported. Once it is active, other servers
 * may be elected: what runs here is kept as an elected one keeps it. */
void ha_relay_send(struct ha_relay *relay, struct runs *runs,
                   const struct ct_ha_plan *plan);
