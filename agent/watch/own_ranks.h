/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that a worker's program has started as ranks of its own, beside those that ctrun starts:
 * torch.multiprocessing.spawn, a loop of multiprocessing.Process, another launcher. What is told of them
 * was read in /proc: they have another RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT than the worker,
 * or are copies of their parent (fork), or say that they are Python's multiprocessing. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct own_ranks {
    pid_t worker; /* 0: no worker has such processes */
    pid_t first;  /* the one with the smallest pid */
    int count;
    int port; /* MASTER_PORT of `first`, where it is another one; else 0 */
    char theirs
        [192]; /* "WORLD_SIZE=2 MASTER_PORT=12355" of `first`; empty: as the worker's */
    char ours[192];     /* what the worker was given for these */
    uint64_t cpu_ticks; /* of all workers and what is below them, so far */
};

/* Of the first worker that has some. `workers` are session leaders; what runs a ctrun of its own is
 * left out. Blocks for a look at /proc. 0, or -ENOMEM. */
int own_ranks_look(struct own_ranks *out, const pid_t *workers, int count);
