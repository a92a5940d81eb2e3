/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the agent process, as callbacks on its loop, with the pid of the sender.
 *
 * One set at a time in a process. A signal that was ignored at our start (nohup) stays ignored. */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/loop/loop.h"

struct signals;

enum {
    SIGNALS_OUTSIDE = -1 /* a sender that has no pid in this PID namespace */
};

/* The sender: a pid, SIGNALS_OUTSIDE, or 0 for the kernel (Ctrl-C). For a signal that
 * the guard passes on: the process that sent it to the guard. Async-signal-safe. */
pid_t signals_sender(const siginfo_t *info);

/* SIGCHLD: sender is the child. Of children that end before the signal is handled the kernel keeps the first. */
typedef void signals_fn(void *context, int signal, pid_t sender);

/* Delays all signals that can be delayed until signals_open(): from the first file on that must not
 * be left behind. Between the two, nothing may block for long. Threads that start meanwhile never
 * handle signals. */
void signals_hold(void);
/* The end of signals_hold() for a process that ends without signals_open(), as signals_close().
 * Does nothing if signals are not delayed. */
void signals_release(void);
/* Catches `list` and SIGCHLD, and unblocks all signals. 0, or a negative errno. */
int signals_open(struct signals **out, struct loop *loop, const int *list, size_t count,
                 signals_fn *fn, void *context);
/* NULL: signals_release(). For a process that ends soon: caught signals are ignored for SIGNALS_LATE_MS more; after that,
 * they have their default action. */
void signals_close(struct signals *signals);
