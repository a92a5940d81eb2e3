/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's count of processes that it killed for lack of memory in our cgroup: the proof
 * that a SIGKILL was the OOM killer's. cgroup v2 and v1; without both nothing can be proven. */
#pragma once

#include "agent/process/cgroup_path.h"

struct oom_counter {
    struct cgroup_path cgroup;
    bool has_count;     /* the kernel counts the kills in it */
    uint64_t oom_kills; /* the count at the last look */
};

/* `membership` is /proc/self/cgroup, `root` is /sys/fs/cgroup; tests pass other paths. */
void oom_counter_init(struct oom_counter *counter, const char *membership,
                      const char *root);
/* True when the count has grown since the last look; proof[size] then quotes it:
 * "oom_kill 0 -> 1 in /slurm/job_7". */
bool oom_counter_has_oom_killed(struct oom_counter *counter, char *proof, size_t size);
/* The lowest memory limit up to the root, and in *used, unless that is NULL, what is used of it now. UINT64_MAX: there
 * is none, and *used is not set. */
uint64_t oom_counter_get_limit(const struct oom_counter *counter, uint64_t *used);
/* That limit in words: "64 MiB of cgroup /slurm/job_7, used 64 MiB, hit 9 times". False
 * when there is none. */
bool oom_counter_describe_limit(const struct oom_counter *counter, char *dst,
                                size_t size);
