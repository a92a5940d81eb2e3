/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a worker most likely means, and what to do about it: a table of signals, exit
 * codes, errors of execve() and last words. Pure. */
#ifndef AGENT_POSTMORTEM_FAILURE_HINTS_H
#define AGENT_POSTMORTEM_FAILURE_HINTS_H

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* The rows of the table. */
int failure_hints_count(void);
/* The first row that fits: its exception, then its text and the last lines of its output, then
 * signal or code; -1: none. */
int failure_hints_find(const struct ct_failure *failure, const char *last_lines);
/* Adds what it means to failure->facts. is_signal_told: what its signal was about is there
 * already, and only words can say more. */
void failure_hints_add(struct ct_failure *failure, bool is_signal_told,
                       const char *last_lines);

#endif
