/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup (version 2) of this run's own below the one that we were started in: one write kills
 * every process in it at once, however fast it forks and whatever it did to escape.
 *
 *     guard: cage_open ── workers: cage_fork ── cage_kill, any time ── guard: cage_close
 *
 * It is named ctrun-PIDNAMESPACE-PID-STARTTIME after the guard. When that process is no more,
 * guard and agent were killed in the same instant: the next cage_open() kills what they left.
 *
 * There is at most one in a process tree, so that signal handlers can reach it; without one (no
 * cgroup v2, no right to make one, or a Slurm step, which keeps accounts of its own) all
 * functions do nothing, and the search for descendants alone (reap.h) does the work. */
#ifndef AGENT_CAGE_H
#define AGENT_CAGE_H

#include <stdbool.h>
#include <sys/types.h>

/* `mounts` is /proc/self/mounts, `membership` /proc/self/cgroup; others in tests. */
void cage_open(const char *mounts, const char *membership);
/* fork(), but the child, and all that it will fork, are in it from birth. The child may call
 * async-signal-safe functions only. */
pid_t cage_fork(void);
/* True when everything in it was sent SIGKILL. Async-signal-safe. */
bool cage_kill(void);
/* Takes the empty cgroup away. */
void cage_close(void);

#endif
