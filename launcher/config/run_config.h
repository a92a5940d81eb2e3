/* SPDX-License-Identifier: Apache-2.0 */
/* The size of the run and this node's place in it. A batch system or --hosts may give them, and
 * then gives the endpoint at once: launcher/config/rdzv_resolve.h resolves both. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/batch/hostlist.h"
#include "launcher/options/nnodes.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/role.h"

/* One of several tasks that a batch system has started on this node; each is one rank. */
struct config_task {
    bool is_rank;               /* false: an agent of its own, the rest is 0 */
    bool is_quiet;              /* another task of the node prints common messages */
    int local_id;               /* our worker's LOCAL_RANK */
    int local_count;            /* LOCAL_WORLD_SIZE */
    int place;                  /* our index in `placement` */
    int node_id;                /* GROUP_RANK */
    int node_count;             /* GROUP_WORLD_SIZE */
    char layout[CT_LAYOUT_MAX]; /* tasks of each node: "8+8+7" */
};

struct run_config {
    struct nnodes nodes;
    uint32_t node_unit; /* worlds have a multiple of so many nodes */
    int nproc;
    char run_id[CT_RUN_ID_MAX];
    bool has_run_id;                   /* it was given, not random */
    bool has_size;                     /* the number of nodes was given */
    char role[CT_ROLE_MAX];            /* of several, all names: "trainer+data" */
    struct ct_role_list roles;         /* of this node's workers; empty: `role` is it */
    struct config_role *role_programs; /* one for each; owned */
    uint32_t
        role_restarts[CT_ROLES_MAX]; /* of a worker alone, on this node in a round */
    uint32_t max_restarts;
    char host[CT_HOST_MAX];   /* this machine's name */
    int node_rank;            /* static: ours; else -1 */
    int node_id;              /* place among the nodes of a batch system or --hosts;
                                     * else -1 */
    int node_count;           /* how many these are; 0: not known */
    struct hostlist expected; /* the nodes' names, as a batch system tells them */
    /* Of each, where each task is an agent of its own, so that `nodes` counts tasks; NULL: one
     * agent each; owned. */
    int *expected_tasks;
    const char *sized_by;     /* "Slurm": gave the number of nodes alone; NULL: none */
    const char *batch_system; /* "Slurm": gives what the user did not; NULL: none */
    char batch[CT_HOST_MAX + 192];  /* our place in it, for people */
    char batch_task[CT_RUN_ID_MAX]; /* for the workers; empty: not a task */
    uint32_t requeues;              /* earlier starts of the job */
    uint32_t kill_wait_s; /* between the batch system's SIGTERM and SIGKILL; 0 */
    struct config_task task;
};
