/* SPDX-License-Identifier: Apache-2.0 */
/* The run's own cgroup (version 2) below the one that we were started in: one write kills every
 * process in it at once, however fast processes fork and whatever they did to escape.
 *
 *     guard: run_cgroup_open ── workers: born there, or run_cgroup_enter ── run_cgroup_kill, any time ──
 *     guard: run_cgroup_close
 *
 * It is named ctrun-NAMESPACES-PID-STARTTIME after the guard. If that process does not exist
 * any more, both guards and the agent were killed in the same instant: the next
 * run_cgroup_open() kills the processes that are left in the cgroup.
 *
 * There is at most one in a process tree, so that signal handlers can reach it; without one (no
 * cgroup v2, no right to make one, or a step of srun, which keeps accounts of its own) all
 * functions do nothing, and the search for descendants alone (reap.h) does the work. */
#pragma once

#include <stdbool.h>

void run_cgroup_open(void);
/* Its directory, open: a child (child.h) can be born there, with all processes that it forks.
 * -1: there is none, or no child can be born there any more: then the child calls
 * run_cgroup_enter(). */
int run_cgroup_directory(void);
/* Moves the calling process there. One system call, which leaves errno alone. */
void run_cgroup_enter(void);
/* True when everything in it was sent SIGKILL. Async-signal-safe. */
bool run_cgroup_kill(void);
/* Removes the empty cgroup. */
void run_cgroup_close(void);
