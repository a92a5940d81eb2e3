/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of ha.h, and private to them:
 *
 *     ha.c          start and end, the thread, calls from agent and server
 *     ha_member.c   this node's member; following the etcd
 *     ha_lead.c     the plan, while this node serves
 *     ha_messenger.c  where the run is, for nodes that ask at its endpoint */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "launcher/ha/ha.h"
#include "launcher/ha/ha_cluster.h"
#include "launcher/ha/ha_machine.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    HA_BUSY_MS = 50,  /* between two looks while something is under way */
    HA_IDLE_MS = 500, /* ... while nothing is: a member that is gone is seen by then */
    HA_CALL_MS = 3000,
    HA_MESSENGER_MS = 1000, /* RUN_HA_LISTEN_MS is three times as long */
    HA_LEADER_MS = 2000, /* between two looks whether etcd's leader is on this node */
    HA_LOST_MS = 5000,   /* without its node: the member counts as lost */
    HA_STEP_MS = 20000,  /* a state that takes longer has failed */
    HA_RETRY_MS = 1000,  /* between two tries of a change of members */
    HA_LISTEN_MS = 3500, /* RUN_HA_LISTEN_MS, which begins with the first node */
    HA_BEGIN_AGAIN_MS = 5000 /* ... of the whole, doubled each time, up to: */,
    HA_BEGIN_AGAIN_MAX_MS = 60000,
};

/* A connected agent, and its last report. */
struct ha_node {
    uint64_t peer;
    struct ct_ha_report report;
};

struct ha {
    struct ha_options options;
    struct ha_hooks hooks;
    struct server *server;
    uint16_t port;
    bool is_founder;
    bool owns_endpoint;
    const struct addresses *reached; /* where a founder listens; else not set */
    const struct rdzv_endpoint *endpoint;
    int wake_fd;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex; /* of the fields below, up to the thread's */
    pthread_cond_t changed;
    bool is_stopping;
    bool has_news;                /* the thread has something to do */
    struct ct_ha_plan plan;       /* the last one that came; epoch 0: none */
    char local[CT_ADDR_TEXT_MAX]; /* our end of the link; empty: not known */
    struct ct_ha_report self;     /* key 0: not ready to be sent */
    struct ct_ha_plan
        found; /* of the running run that we found elsewhere; epoch 0: none */
    uint64_t instance, generation; /* of the run, as the agent knows it; 0: not yet */
    bool finds;
    struct ha_node *nodes; /* owned; while this node serves */
    size_t node_count, node_capacity;

    /* Of the thread alone. */
    struct etcd_config etcd; /* of certified_epoch */
    uint64_t certified_epoch;
    bool is_broken; /* no certificates can be made here, or the keeper is gone */
    bool has_started;
    uint64_t started_epoch;
    uint64_t tried_ms;    /* when following was tried last */
    uint64_t known_count; /* voters that the candidate knows, as a sum of their ports */

    enum ha_state state;
    bool leads;
    struct ct_ha_plan made; /* while it leads: the plan */
    char ids[CT_HA_MEMBERS_MAX][24];
    uint64_t
        absent_ms[CT_HA_MEMBERS_MAX]; /* since when its node is not here; 0: it is */
    enum ha_outcome outcome;
    uint64_t state_ms;
    uint64_t retry_ms;
    uint64_t begin_again_ms;
    uint64_t messenger_ms; /* when the next one is due */
    uint64_t leader_ms;    /* when to look next where etcd's leader is */
    struct etcd *admin;    /* NULL: not open */
};

/* ---- ha_member.c ------------------------------------------------------------------------- */

/* Ports, certificates, etcd: as `plan` says. True while something is under way. */
bool ha_keep_member(struct ha *ha, const struct ct_ha_plan *plan);
/* The rendezvous is where etcd says, once the plan is ACTIVE. The same. */
bool ha_follow(struct ha *ha, const struct ct_ha_plan *plan);
/* Certificates and etcd_config for that plan. False: they cannot be made. */
bool ha_certify(struct ha *ha, const struct ct_ha_plan *plan);

/* ---- ha_messenger.c ---------------------------------------------------------------------- */

/* What listens at the endpoint is told of the run; while another node serves, this node's server
 * tells newcomers where. Blocks for two seconds at most. */
void ha_send_messenger(struct ha *ha, const struct ct_ha_plan *plan);
/* The same on the other side: this node founds the run no more, and follows that plan. */
void ha_take_found(struct ha *ha);

/* ---- ha_lead.c --------------------------------------------------------------------------- */

/* While this node serves. The same. */
bool ha_lead(struct ha *ha, const struct ct_ha_plan *plan);
void ha_lead_end(struct ha *ha);
