/* SPDX-License-Identifier: Apache-2.0 */
/* Where Slurm put us, from its environment alone: no scontrol, no squeue, no name server.
 *
 * Inside a step (srun) the step's variables count, not the job's: `srun -N2` in a job of three
 * nodes is a run of two. A batch script or salloc's shell is no step: SLURM_STEP_ID is not set,
 * and ctrun there is an ordinary process on one node. Pure, but for hostlist's memory. */
#ifndef LAUNCHER_SLURM_H
#define LAUNCHER_SLURM_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/hostlist.h"

enum {
    SLURM_PORTS =
        4, /* how many ports a step may try: the first may be taken on its host */
};

struct slurm_place {
    char run_id[64];       /* "slurm-JOB.STEP", with ".RESTART" after a requeue */
    struct hostlist nodes; /* of the step, in node-id order; owned */
    int node_id;           /* our index in it */
    int tasks_here;        /* tasks of the step on this node */
    int local_id;          /* which of them we are */
    int task_rank;         /* SLURM_PROCID */
    int task_count;
    uint16_t
        ports[SLURM_PORTS]; /* candidates for the rendezvous, the same on every node */
};

/* `get` looks a name up in the environment (NULL: not set); context is its first argument.
 * Returns 1 and fills *out inside a step, 0 outside, or CTRUN_E_BAD_ENVIRONMENT when the
 * variables contradict each other, naming them. */
int slurm_place_read(struct slurm_place *out,
                     const char *(*get)(const void *context, const char *name),
                     const void *context, struct ctrun_error *err);
void slurm_place_deinit(struct slurm_place *place);

/* Entry `index` of Slurm's per-node lists: "8,3,1(x6)". -EINVAL when there is none. */
int slurm_per_node(const char *text, size_t index, int *out);

#endif
