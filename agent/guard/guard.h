/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: the process that the shell or scheduler starts and sees. It makes sure that no
 * process of the run is left, whichever process is killed.
 *
 *     guard ── second guard ── agent ── workers
 *
 * Any two of the first three may be killed, or stopped: the remaining one ends the run. All are
 * child subreapers. The guard stays in the session that it was started in, so that a terminal's
 * signals reach it; the others, and each worker, have a session of their own. A guard whose
 * child has ended for any reason, SIGKILL included, finds every descendant (double-forked and
 * setsid ones are its children by then), kills them until none is left, and ends with the
 * agent's exit code. A process whose parent has ended notices this (PDEATHSIG, checked after
 * fork) and kills all processes below it the same way. Signals that the guard gets are passed on
 * down to the agent. */
#pragma once

#include <sys/types.h>

#include "worker_sdk/base/error.h"

/* In the agent: pid of the process that the shell or scheduler sees; our parent when there is no
 * guard. */
pid_t guard_pid(void);
/* A descriptor for the agent alone: the guards close theirs once the agent has it. Before
 * guard_run(); one only. */
void guard_hand_over(int fd);
/* Forks; the child calls agent_main(context) and exits with what it returns; the parent guards
 * and returns the exit code for the process. Must be called before any thread is started. */
int guard_run(int (*agent_main)(void *context), void *context, struct ctrun_error *err);
