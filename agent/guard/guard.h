/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: the process that the outside sees. It makes sure that, whatever happens to whom, no
 * process of the run is left.
 *
 *     guard ── second guard ── agent ── workers
 *
 * Any two of the first three may be killed, or stopped, and the one that is left does what is to be
 * done. All are child subreapers. The guard stays in the session that it was started in, so that a
 * terminal's signals reach it; the others, and each worker, have a session of their own. Who loses its
 * child, for whatever reason, SIGKILL included, finds every descendant (double-forked and setsid
 * ones are its children by then), kills them until none is left, and ends with the agent's exit
 * code. Who loses its parent notices (PDEATHSIG, checked after fork) and kills what is below it the
 * same way. Signals that the guard gets are passed on down to the agent. */
#pragma once

#include <sys/types.h>

#include "worker_sdk/base/error.h"

/* In the agent: the process that the outside sees; our parent when there is no guard. */
pid_t guard_pid(void);
/* A descriptor that is the agent's alone: the guards close it once the agent has it. Before
 * guard_run(); one only. */
void guard_hand_over(int fd);
/* Forks; the child calls agent_main(context) and exits with what it returns; the parent guards
 * and returns the exit code for the process. Must be called before any thread is started. */
int guard_run(int (*agent_main)(void *context), void *context, struct ctrun_error *err);
