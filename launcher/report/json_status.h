/* SPDX-License-Identifier: Apache-2.0 */
/* The status that an agent reports (agent/report.c), as ctrunctl reads it. */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/wire/message.h"

struct json_worker {
    int rank;
    int local_rank;
    int pid;
    char role[CT_ROLE_MAX]; /* empty unless the node has several roles */
    char state[16];
    char cause[16]; /* "none" while it runs */
    int code;
    uint64_t uptime_ms;
    int64_t step;   /* -1: none reported */
    int restarts;   /* of this worker alone, in this round; -1: not allowed */
    int64_t rss_kb; /* -1: unknown */
    int children;   /* processes that it has started, and all of theirs */
    int64_t children_rss_kb;
    char *out_file; /* owned; NULL: none */
    char *err_file;
};

/* The rank or node that the others wait for. */
struct json_straggler {
    int rank; /* -1: none reported */
    int steps;
    double late_ms, percent; /* of a step */
    char host[256];          /* of a node; empty: a rank of this node */
    char differs[512];       /* how it differs; may be empty */
};

struct json_status {
    char run_id[CT_RUN_ID_MAX];
    char host[CT_HOST_MAX];
    char state[16];
    char master_addr[CT_HOST_MAX];
    char rendezvous[128];         /* the server's address; empty: not linked to it */
    char missing[CT_MISSING_MAX]; /* nodes that are waited for, if known */
    int pid;                      /* of the agent */
    int guard_pid;                /* of the ctrun that was started */
    int master_port;
    uint64_t uptime_ms;
    uint64_t generation; /* 0: no round yet */
    unsigned restart_count;
    unsigned max_restarts;
    unsigned requeues;       /* earlier starts of the batch system's job */
    uint64_t total_restarts; /* with those of these starts, but for ... */
    unsigned unknown_starts; /* ... so many of them */
    unsigned nodes;
    unsigned node_rank;
    unsigned world_size;
    unsigned joined; /* nodes, while waiting; wanted are: */
    unsigned min_nodes;
    unsigned max_nodes;
    uint64_t left_ms; /* until the start, if enough nodes are here */
    uint64_t held_ms; /* enough nodes are here; old workers may still run this long */
    bool is_waiting;
    unsigned spare; /* the run is full, and this is its n-th spare; 0: no spare */
    char
        command[CT_COMMAND_MAX]; /* the last `ctrunctl reload`; empty: there was none */
    bool is_command_used;        /* by the workers of this round */
    unsigned ha_nodes;           /* members of the run's own etcd; 0: it has none */
    unsigned ha_survives;
    struct json_straggler straggler, straggler_node;
    unsigned
        connected; /* ranks, to the worker store, while `absent` are not; 0: not reported */
    char absent[512];
    struct json_worker *workers; /* owned */
    size_t worker_count;
};

/* 0, -EBADMSG, -ENOMEM. deinit accepts a zeroed one. Keys that are missing leave zeros. */
int json_status_read(struct json_status *out, const char *text, size_t length);
void json_status_deinit(struct json_status *status);

/* The /status page of a rendezvous server: its version, and its runs as "j1 (running), ...".
 * 0 or -EBADMSG. */
int json_server_read(const char *text, size_t length, char *version,
                     size_t version_size, char *runs, size_t runs_size);

/* The text of an agent's answer to CT_CTL_WHY ("why") or CT_CTL_STACKS ("stacks"), made plain and
 * owned by the caller. 0, -EBADMSG, -ENOMEM. */
int json_text_read(const char *text, size_t length, const char *key, char **out);
