/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_PROCESS_PROCESS_CATCHES_H
#define AGENT_PROCESS_PROCESS_CATCHES_H

#include <stdbool.h>
#include <sys/types.h>

/* True when the process has a handler for the signal, as /proc/PID/status says; false when it has
 * none, is gone, or cannot be looked at. */
bool process_catches(pid_t pid, int signal);

#endif
