/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup of this process that has the limits of one controller, and the cgroups above it. Lines of
 * /proc/self/cgroup: "8:pids:/path" is v1, where each controller has a hierarchy of its own; "0::/path" is v2. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroup_path {
    char directory[PATH_MAX]; /* its folder; empty: there is none */
    size_t root_length;       /* length of the part of it that is above all cgroups */
    bool is_v1;
    bool is_own; /* it is the cgroup of this process, not one above it */
};

/* `controller` is "memory", "pids", "cpu" or "cpu,cpuacct"; `membership` is /proc/self/cgroup, `root` is /sys/fs/cgroup; tests pass other
 * paths. The file "mountinfo" beside `membership` says which cgroup is mounted at the folder; of several mounts there the last
 * one counts. A path of the host that is not visible here: the nearest cgroup that is. Where no folder of v1 is there, v2 counts.
 * False: there is none. */
bool cgroup_path_find(struct cgroup_path *out, const char *controller,
                      const char *membership, const char *root);
/* Goes to the cgroup above; false at the root. */
bool cgroup_path_go_up(struct cgroup_path *cgroup);
/* "/job/step", for people. Borrowed from the cgroup. */
const char *cgroup_path_name(const struct cgroup_path *cgroup);
/* The number in one of its files; false for "max", and for v1's largest number: they mean no limit. And where
 * there is no cgroup. */
bool cgroup_path_read(const struct cgroup_path *cgroup, const char *file,
                      uint64_t *out);
/* The two numbers of a file; false where the first is "max". */
bool cgroup_path_read_pair(const struct cgroup_path *cgroup, const char *file,
                           uint64_t *first, uint64_t *second);
/* The number behind `key` in one of its files, which has lines "KEY NUMBER". */
bool cgroup_path_read_key(const struct cgroup_path *cgroup, const char *file,
                          const char *key, uint64_t *out);
