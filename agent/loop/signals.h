/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the agent process, as callbacks on its loop, with the pid of the sender.
 *
 * One set at a time in a process. A signal that was ignored at our start (nohup) stays ignored. */
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
/* NULL: signals_release(). For a process that ends soon: caught signals are ignored for SIGNALS_LATE_MS more; after that,
 * they have their default action. */
void signals_close(struct signals *signals);
