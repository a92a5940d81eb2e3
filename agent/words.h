/* SPDX-License-Identifier: Apache-2.0 */
/* Last words that tell more than they say: a library or module that is missing, a script that is
 * not there. Such a program never really started. Pure. */
#ifndef AGENT_WORDS_H
#define AGENT_WORDS_H

#include "worker_sdk/wire/message.h"

/* Adds what they mean to failure->facts. */
void words_explain(struct ct_failure *failure);

#endif
