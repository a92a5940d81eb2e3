/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that is about to become another program. Until then it shares our memory and
 * runs at the same time: no pages are copied, as fork() does, and the caller does not sleep
 * until the child has run, as after vfork().
 *
 * So until it has called execve() or ended, the child may
 *
 *   - use no memory but what it was given: we change the rest at the same time,
 *   - make system calls by raw.h alone, since it shares our errno.
 *
 * Where the kernel (before Linux 5.5, or a container's filter), the processor or a sanitizer
 * does not allow it, or CTRUN_CLONE3=0 forbids it, fork() makes the child, a copy, and the same
 * rules do no harm. The reasons and the measured gain are in ctrun-architecture(7), "Starting a
 * worker". */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define CHILD_ENV_CLONE3 "CTRUN_CLONE3" /* 0: by fork() */

/* What a child does; does not return. */
typedef void child_main(void *context);

/* Starts main(context) in a child that has the caller's signal mask, but none of its handlers:
 * caught signals have their default action, ignored ones stay ignored. Its stack of `size` bytes
 * from `stack` on (aligned to 16) and context are its own until it has called execve() or ended.
 * It is born in the cgroup (version 2) whose directory is open as `cgroup`, unless that is -1.
 * Its pid, or a negative errno. */
pid_t child_start(child_main *main, void *context, void *stack, size_t size,
                  int cgroup);
