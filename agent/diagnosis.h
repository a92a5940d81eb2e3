/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a worker most likely means, and what to do about it: a table of signals, exit
 * codes, errors of execve() and last words. Pure. */
#ifndef AGENT_DIAGNOSIS_H
#define AGENT_DIAGNOSIS_H

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* The rows of the table. */
int diagnosis_count(void);
/* The first row that fits; -1: none. */
int diagnosis_find(const struct ct_failure *failure);
/* Adds what it means to failure->facts. is_signal_told: what its signal was about is there
 * already, and only words can say more. */
void diagnosis_add(struct ct_failure *failure, bool is_signal_told);

#endif
