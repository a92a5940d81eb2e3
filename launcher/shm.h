/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL and PyTorch leave in /dev/shm when they are killed: files that fill it up until
 * nothing starts any more. */
#ifndef LAUNCHER_SHM_H
#define LAUNCHER_SHM_H

#include <stdint.h>

struct shm_sweep {
    int removed; /* files */
    uint64_t removed_bytes;
    int doubtful; /* nobody that we see has them open, but we do not see everybody */
    uint64_t doubtful_bytes;
};

/* Removes nccl-*, torch_* and their like in `folder` that are this user's, older than
 * min_age_s and neither mapped nor open in any process. In a PID namespace other processes may
 * have them: there they are only counted. Nobody else's file is touched. */
void shm_sweep(struct shm_sweep *out, const char *folder, uint64_t min_age_s);

#endif
