/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the agent process, as callbacks on its loop, with the pid of who sent them.
 *
 * One set at a time in a process. A signal that was ignored when we came (nohup) stays so. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "agent/loop/loop.h"

struct signals;

/* sender: 0 when the kernel sent it (Ctrl-C, SIGCHLD). The guard passes on who sent its own. */
typedef void signals_fn(void *context, int signal, pid_t sender);

/* Catches `list` and SIGCHLD. 0, or a negative errno. */
int signals_open(struct signals **out, struct loop *loop, const int *list, size_t count,
                 signals_fn *fn, void *context);
/* For a process that ends soon: what was caught does nothing for SIGNALS_LATE_MS more, and what it
 * does by default from then on. */
void signals_close(struct signals *signals);
