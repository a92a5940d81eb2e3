/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a process before its program starts: the CPUs it may run on and its limits.
 * Decided beforehand; bind_apply() runs between fork and exec. */
#pragma once

#include "agent/process/cpuset.h"

enum {
    /* systemd's hard limit. The soft limit is not raised above it, even where the hard limit is
     * higher, as in containers (2^30): programs that close all descriptors one by one would take
     * minutes. */
    BIND_FILES_MAX = 524288
};

struct bind {
    bool has_cpus;
    bool raises_files; /* RLIMIT_NOFILE: the soft limit up to the hard one */
    bool raises_core;  /* RLIMIT_CORE: the same */
    struct cpuset cpus;
};

/* Applies it to the calling process, by raw.h alone, and raises the soft limit of locked memory to the
 * hard one. 0, or the negative errno of
 * sched_setaffinity(); a limit that cannot be raised stays. */
int bind_apply(const struct bind *bind);
/* The soft limit of open files that a process will have. */
unsigned long long bind_files_limit(bool is_raised);
