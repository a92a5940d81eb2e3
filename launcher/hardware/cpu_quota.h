/* SPDX-License-Identifier: Apache-2.0 */
/* How much CPU time the cgroups of this process allow it: a container with "8 CPUs" may run on all 64 of
 * a machine, but for 8 seconds of a second only. */
#pragma once

/* In CPUs, rounded up; 0: no limit is known. The smallest of its cgroup and of those above. `membership`
 * is /proc/self/cgroup, `root` is /sys/fs/cgroup; tests pass other paths. */
int cpu_quota_find(const char *membership, const char *root);
