/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: the process that the outside sees. It starts the agent as its child and makes
 * sure that, whatever happens to whom, no process of the run is left.
 *
 * guard and agent are both child subreapers and watch each other; the agent's workers are in
 * sessions of their own. When the agent ends for whatever reason, SIGKILL included, the guard
 * finds every descendant (double-forked and setsid ones are its children by then), kills them
 * until none is left, and ends with the agent's exit code. When the guard is killed, the agent
 * notices (PDEATHSIG, checked after fork) and ends its workers the same way. Signals that the
 * guard gets are passed on to the agent. */
#ifndef AGENT_GUARD_H
#define AGENT_GUARD_H

#include "worker_sdk/base/error.h"

/* Forks; the child calls agent_main(context) and exits with what it returns; the parent guards
 * and returns the exit code for the process. Must be called before any thread is started. */
int guard_run(int (*agent_main)(void *context), void *context, struct ctrun_error *err);

#endif
