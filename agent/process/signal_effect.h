/* SPDX-License-Identifier: Apache-2.0 */
/* What a signal would do to a process, from /proc: whether it ends a process that has no handler
 * for it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* True when the process, as it is now, neither catches nor ignores nor blocks the signal, and
 * the signal then ends it. False for signals that people send in order to end a process: TERM,
 * INT, QUIT, HUP, ABRT and KILL. False as well where /proc does not say. */
bool signal_effect_is_fatal(pid_t pid, int signal);
/* The same for one thread: `status` is its /proc/PID/task/TID/status. Pure. */
bool signal_effect_reads_fatal(const char *status, int signal);
/* True when the process has a handler for the signal; false when it has none, is gone, or cannot be
 * looked at. */
bool signal_effect_is_caught(pid_t pid, int signal);
/* True when the signal ends the process, also a dead one, had it come before: its first thread
 * neither catches nor ignores nor blocks it, nor is in sigwait(). False as well where /proc does not say. */
bool signal_effect_ends(pid_t pid, int signal);
