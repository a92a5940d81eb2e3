/* SPDX-License-Identifier: Apache-2.0 */
/* The last call of each worker on its process groups, as text, from the flight recorder of its torch. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/base/buf.h"

struct recorder_place {
    int rank;
    pid_t pid;
};

/* Appends a line for each worker whose recorder has a call and answers before deadline_ms (monotonic):
 *
 *     rank 0 has not completed gloo:all_reduce 6 of default_pg, Float[3], called 3.2 s ago
 *     rank 1 has completed gloo:all_reduce 5 of default_pg, Float[3], called 3.3 s ago, and no later call is known
 *
 * `folder` is the path of the recorders' sockets with a slash at its end. Blocks. 0, -ENOMEM, or a code of
 * ct_buf. */
int recorder_calls_write(struct ct_buf *out, const char *folder,
                         const struct recorder_place *list, int count,
                         uint64_t deadline_ms);
