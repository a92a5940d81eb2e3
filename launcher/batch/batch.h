/* SPDX-License-Identifier: Apache-2.0 */
/* This node's place in the job of a batch system, from the environment alone: no scontrol, no
 * squeue, no name server. Each system has one file (slurm.c, batch_pbs.c, ...), a pure reader of
 * variables and, where the system keeps its host list in a file, of that file; batch_find() of
 * batch_systems.h asks them in turn.
 *
 * A *task* is one copy of ctrun that the system (srun, mpirun, pbsdsh, ...) started. Several
 * tasks a node have three shapes, the same on every node of the job:
 *
 *     BATCH_AGENT   one task a node: an agent that starts --nproc-per-node workers
 *     BATCH_RANKS   several, and --nproc-per-node is not given (or 1): each task is one rank.
 *                   The same where each task has one GPU of its own, which the others do not see,
 *                   and --nproc-per-node is their number, gpu or auto
 *     BATCH_MERGE   several, and --nproc-per-node=N: the first task of each node is its agent,
 *                   the others wait for its end; never N workers times N tasks */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/batch/hostlist.h"
#include "launcher/options/option.h"

enum {
    BATCH_PORTS = 4,                /* that a job may try: the first may be in use */
    BATCH_FILE_MAX_BYTES = 8 << 20, /* 65536 hosts with long names */
};

struct batch_place {
    const char *system; /* "Slurm"; static */
    char job[128];      /* "job 4 step 0"; for people */
    char run_id[128];   /* the same on every node, another for each start of the job */
    struct hostlist
        nodes; /* in node-id order; owned. The first node alone where only --nnodes
                              tells how many there are (has_size false) */
    bool has_size;
    int *tasks;                  /* of each of `nodes`; owned */
    int node_id;                 /* our index among the nodes */
    int local_id;                /* our index among the tasks of our node */
    uint16_t ports[BATCH_PORTS]; /* candidates, the same on every node */
    uint32_t requeues;           /* earlier starts of this job */
    int task_gpus;               /* that each task alone sees; 0: none, or not known */
};

struct batch_source {
    /* A name's value; NULL or empty: not set. */
    const char *(*get)(const void *context, const char *name);
    /* A whole file, terminated, owned by the caller; NULL: it cannot be read. */
    char *(*read)(const void *context, const char *path);
    const void *context;
    const char *host; /* this machine's name; NULL: unknown */
    int parent; /* pid of who started us: the same for all tasks of a local mpiexec */
};

/* This process. `env` is borrowed by the source. */
struct batch_source batch_source_of(char *const *const *env);

void batch_place_deinit(struct batch_place *place);

int batch_task_count(const struct batch_place *place); /* on all nodes */
int batch_task_index(const struct batch_place *place); /* ours, counted node by node */

enum batch_shape {
    BATCH_AGENT,
    BATCH_RANKS,
    BATCH_MERGE
};

enum batch_shape batch_shape(const struct batch_place *place,
                             const struct options *options);

/* ---- For the readers ------------------------------------------------------------------- */

/* NULL when not set or empty. */
const char *batch_text(const struct batch_source *from, const char *name);
/* 0, or CTRUN_E_BAD_ENVIRONMENT naming the variable; it must be there. */
int batch_number(const struct batch_source *from, const char *name, int *out,
                 struct ctrun_error *err);
/* As many tasks on each of the nodes. 0, -ENOMEM. */
int batch_set_tasks(struct batch_place *place, int tasks);
/* The hosts that a batch system has given to the job, each once, in its order: PBS's node file,
 * LSF's or Slurm's list. `id` becomes "pbs-123"; outside a job `id` and the list are
 * empty. CTRUN_E_BAD_ENVIRONMENT. */
int batch_hosts_list(struct hostlist *out, char *id, size_t size,
                     const struct batch_source *from, struct ctrun_error *err);
/* True when both name one machine, with or without their domains. */
bool batch_is_same_host(const char *a, const char *b);
/* Checks node_id and local_id against what was listed, and chooses the ports by `seed`. 1, or CTRUN_E_BAD_ENVIRONMENT. */
int batch_check(struct batch_place *place, uint32_t seed, struct ctrun_error *err);
/* For seeds. */
uint32_t batch_hash(const char *text);

/* One system each, as batch_find() for it alone; Slurm's is in slurm.h. */
int batch_flux_read(struct batch_place *out, const struct batch_source *from,
                    struct ctrun_error *err);
int batch_pbs_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err);
int batch_lsf_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err);
int batch_kubernetes_read(struct batch_place *out, const struct batch_source *from,
                          struct ctrun_error *err);
int batch_mpi_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err);
