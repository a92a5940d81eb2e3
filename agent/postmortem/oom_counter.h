/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's count of processes that it killed for lack of memory in our cgroup: the proof
 * that a SIGKILL was the OOM killer's. cgroup v2 and v1; without both nothing can be proven. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oom_counter {
    char counter_file
        [512];           /* memory.events or memory.oom_control; empty: there is none */
    char name[256];      /* path of the cgroup, for people */
    char directory[512]; /* path of the folder of the counter file */
    size_t root_length;  /* length of the part of it that is above all cgroups */
    uint64_t oom_kills;  /* the count at the last look */
};

/* `membership` is /proc/self/cgroup, `root` is /sys/fs/cgroup; tests pass other paths. */
void oom_counter_init(struct oom_counter *cgroup, const char *membership,
                      const char *root);
/* True when the count has grown since the last look; proof[size] then quotes it:
 * "oom_kill 0 -> 1 in /slurm/job_7". */
bool oom_counter_has_oom_killed(struct oom_counter *cgroup, char *proof, size_t size);
/* The lowest memory limit up to the root; UINT64_MAX: there is none. */
uint64_t oom_counter_get_limit(const struct oom_counter *cgroup);
/* That limit in words: "64 MiB of cgroup /slurm/job_7, used 64 MiB, hit 9 times". False
 * when there is none. */
bool oom_counter_describe_limit(const struct oom_counter *cgroup, char *dst,
                                size_t size);
