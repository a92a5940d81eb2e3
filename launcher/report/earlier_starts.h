/* SPDX-License-Identifier: Apache-2.0 */
/* How often workers were restarted in the earlier starts of a job that its batch system has requeued: from their summary.json
 * below the log folder. Each has the sum of those before it, so the newest one that is found is enough. */
#pragma once

#include "agent/watch/job_starts.h"

struct earlier_starts_of {
    const char *base;   /* --log-dir; NULL: none */
    const char *task;   /* of this start: "slurm-41.0.2" */
    const char *run_id; /* of this start */
    uint32_t requeues;  /* starts before it */
};

/* Waits for the file system for a short time only. */
void earlier_starts_find(struct job_starts *out, const struct earlier_starts_of *of);
