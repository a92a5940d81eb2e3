/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that a worker's program has started as ranks of its own, besides those that ctrun starts:
 * torch.multiprocessing.spawn, a loop of multiprocessing.Process, another launcher. They are found
 * in /proc: they have another RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT than the worker,
 * or are copies of their parent (fork), or say that they are Python's multiprocessing. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct own_ranks {
    pid_t worker; /* 0: no worker has such processes */
    pid_t first;  /* the one with the smallest pid */
    int count;
    int port; /* MASTER_PORT of `first`, if it differs; else 0 */
    char theirs
        [192]; /* "WORLD_SIZE=2 MASTER_PORT=12355" of `first`; empty: the same as the worker's */
    char ours[192];     /* the worker's values of these variables */
    uint64_t cpu_ticks; /* of all workers and their descendants, so far */
};

/* Reports the first worker that has some. `workers` are session leaders; processes below another
 * ctrun are left out. Blocks while it reads /proc. 0, or -ENOMEM. */
int own_ranks_look(struct own_ranks *out, const pid_t *workers, int count);
