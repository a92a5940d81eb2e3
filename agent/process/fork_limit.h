/* SPDX-License-Identifier: Apache-2.0 */
/* Which limit of processes and threads a fork() has reached that failed with EAGAIN: the kernel does not say. */
#pragma once

#include <stddef.h>

#include "worker_sdk/base/error.h"

/* "cgroup /job is at its limit of 512 processes and threads (pids.max)", "this user may have 4096 processes and threads
 * (ulimit -u)", or that it is unknown. `membership`: /proc/self/cgroup; `root`: /sys/fs/cgroup. */
void fork_limit_describe(char *dst, size_t size, const char *membership,
                         const char *root);
/* The error of a fork() that failed with `rc`, a negative errno, with that limit; returns `rc`. */
int fork_limit_fail(int rc, struct ctrun_error *err);
