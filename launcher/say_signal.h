/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear when ctrun is sent a signal: one line, and how long the workers have to save.
 * Of a batch system that signals every node the first node speaks for all. */
#ifndef LAUNCHER_SAY_SIGNAL_H
#define LAUNCHER_SAY_SIGNAL_H

#include <sys/types.h>

#include "launcher/config.h"

/* text: who sent it, and what follows (launcher/sender.h). is_first: it ends the run, and none
 * has before. */
void say_signal(const struct config *config, const char *text, int signal, pid_t sender,
                bool is_first);
/* While they save. */
void say_signal_left(const struct config *config, uint64_t left_ms);

#endif
