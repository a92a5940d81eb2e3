/* SPDX-License-Identifier: Apache-2.0 */
/* Where the nodes meet, who may come, and how long everybody waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/config/etcd_config.h"
#include "worker_sdk/net/net.h"
#include "worker_sdk/net/port_range.h"
#include "worker_sdk/wire/auth.h"

enum config_backend {
    CONFIG_LOCAL, /* one node: a private server on a free port of the loopback interface */
    CONFIG_STATIC, /* node rank 0 serves at the endpoint, the workers' store as well */
    CONFIG_C10D,   /* the node that owns the endpoint's address serves */
    CONFIG_ETCD,   /* the elected node serves; when it dies, another is elected */
};

enum config_is_host {
    CONFIG_HOST_AUTO,
    CONFIG_HOST_NO,
    CONFIG_HOST_YES
};

enum {
    CONFIG_PLACES_MAX = 4
};

/* srun's PMI, through which the nodes may learn where they meet: launcher/config/rdzv_pmi.h. */
struct config_pmi {
    bool is_used;
    bool is_required; /* --bootstrap=pmi: no other way will do */
    bool
        is_for_worker; /* not used, and this task is one rank: its program may be MPI */
    bool makes_token;  /* nothing else tells who belongs to the run */
    int fd;
    int rank;
    int size;
    char job[64];
    char why_not[192]; /* empty: PMI was not looked for */
};

/* An etcd of the run's own: launcher/ha/. */
struct config_ha {
    int nodes;      /* members; 0: none */
    char etcd[256]; /* paths of programs */
    char openssl[256];
    int keeper; /* our end of the socket of the process that keeps etcd */
};

struct rdzv_settings {
    enum config_backend backend;
    char local_addr[CT_HOST_MAX];
    struct ct_net net;          /* --net; count 0: every interface */
    const char *net_text;       /* as given */
    struct ct_port_range ports; /* --port-range */
    const char *ports_text;
    struct ct_endpoint endpoint;        /* CONFIG_LOCAL: 127.0.0.1, port 0 */
    uint16_t places[CONFIG_PLACES_MAX]; /* derived ports: the node that serves takes the
                                         * first that is free; endpoint.port is places[0] */
    int place_count;                    /* 0: endpoint.port alone */
    struct etcd_config etcd; /* CONFIG_ETCD: where and how; `endpoint` is its first */
    struct config_ha ha;     /* --ha */
    struct config_pmi pmi;
    enum config_is_host is_host;
    struct ct_auth_token token; /* empty: no proof of membership, except by MUNGE */
    bool uses_munge;
    bool accepts_anybody; /* --auth=none was given */
    bool wants_seal;      /* --encrypt */
    bool guards_stores;   /* the worker store is for nodes and user of this run alone */
    bool
        worker_serves; /* TORCH_DISABLE_SHARE_RDZV_TCP_STORE: worker 0, at MASTER_PORT */
    uint64_t join_timeout_ms;
    uint64_t last_call_ms;
    uint64_t connect_timeout_ms;
    uint64_t heartbeat_ms;
    uint64_t lost_after_ms;
};
